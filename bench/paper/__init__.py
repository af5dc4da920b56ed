"""The experiments of QuiCK's section 8 on this system, run on the machine and simulated at the paper's scale.

    python -m bench.paper figure4     throughput at saturation against consumers and items per enqueue
    python -m bench.paper figure5     pointer and item latency, uniform load, one consumer
    python -m bench.paper figure6     the same, skewed load
    python -m bench.paper figure7     the fraction of peeked pointers that is chosen, against latency, failed leases
                                      and throughput; four consumers

Each takes `--form real`, `simulated` or `both` (the default), `--quick`, and `--out` (default `docs/paper`).

    Load, consumers  -->  a form: Machine (Ray fleets, bench.load)  -->  Outcome  -->  figure4.json  -->  figure4.png
    and their settings    or Model (the simulator, virtual time)                                     -->  README.md

The points of a figure do not depend on the form that runs them. Both forms return the same `Outcome`, so their
latencies and failed leases have the same meaning.

Read in this order:
    published    the numbers in the paper's text
    setup        the consumers that are measured, and their settings
    forms        the interface of a form
    model        the simulated form, its latencies, and its limits
    machine      the real form: fleets on Ray and an embedded store
    points       the points of a figure, run one by one or side by side
    scalability  figure 4
    fairness     figures 5 and 6
    contention   figure 7
    experiments  all of them by name; data  their stored rows
    plots        axes that all figures share
    differences  text: the differences from the paper, and their causes
    page         docs/paper/README.md, from the data of all figures and this text
May import: bench.load, bench's fleets and reports, simulation. Imported by: tests.
"""
