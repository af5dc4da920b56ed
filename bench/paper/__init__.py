"""The experiments of QuiCK's section 8 on this system, run on the machine and simulated at the paper's scale.

    python -m bench.paper figure4     throughput at saturation against consumers and items per enqueue
    python -m bench.paper figure5     pointer and item latency, uniform load, one consumer
    python -m bench.paper figure6     the same, skewed load
    python -m bench.paper figure7     the fraction of peeked pointers that is chosen, against latency, failed leases
                                      and throughput; four consumers

Each takes `--form real`, `simulated` or `both` (the default), `--quick`, and `--out` (default `docs/paper`).

    Load, consumers  -->  a form: Machine (Ray fleets, bench.load)  -->  Outcome  -->  figure4.json  -->  figure4.png
    and their settings    or Model (the simulator, virtual time)                                     -->  README.md

What a figure is made of does not know which form runs it, and both forms answer with the same `Outcome`: the latencies
and failed leases of the one are those of the other.

Read in this order:
    published    what the paper says, number by number
    setup        who is measured: consumers, and how they work
    forms        what a form can be asked for
    model        the simulated form, its latencies, and what can saturate in it
    machine      the real form: fleets on Ray and an embedded store
    points       what a figure is made of, run one by one or side by side
    scalability  figure 4
    fairness     figures 5 and 6
    contention   figure 7
    experiments  all of them by name; data  what is kept of them
    plots        axes that all figures share
    differences  where and why we differ, in words
    page         docs/paper/README.md, from the data of all figures and these words
May import: bench.load, bench's fleets and reports, simulation. Imported by: tests.
"""
