"""docs/paper/olive.md: what `python -m bench.olive` measured, beside the numbers in Olive's text.

    python -m bench.olive figure11 --out docs/paper    measures, saves olive-figure11.json, and writes the page again
    python -m bench.olive page                         writes the plots and the page from the saved data

    rows of bench.olive  -->  olive-figure11.json  -->  olive-figure11.png and a section of olive.md

Read in this order:
    published    the numbers in the paper's text
    data         the engines, and the saved figures
    plots        groups of bars with confidence intervals
    sections     how tables show a mean, and whether a bar is reached
    intents      figures 9 and 10
    snapshots    figure 11
    moves        figure 12, the storage, and moves under load
    spanning     transactions over two shards
    locks        locks of processes that were killed
    owner        the cost of the ownership record
    bars         the bars of the design, and what was measured
    page         the page
May import: bench.figures, bench.paper's plots and tables, the limits in the modules that measure.
Imported by: bench.olive, tests.
"""
