"""Uniqorn's experiments (section 4): records that are found by any key, over stores of the common storage model.

    python -m bench.uniqorn table1|figure4|figure5|figure6|figure7 [--json] [--quick] [--out DIRECTORY]
    python -m bench.uniqorn figure7 --on embedded [--json] [--quick] [--out DIRECTORY]
    python -m bench.uniqorn build [--json] [--quick] [--out DIRECTORY]
    python -m bench.uniqorn shards [--json] [--quick] [--out DIRECTORY] [--store fdb:CLUSTER_FILE, five times]
    python -m bench.uniqorn page [--out DIRECTORY]

With `--out`, a figure saves its rows in that directory, and writes the page. `page` writes the page and its plots from
the rows that are saved there (default: docs/paper).

Table 1 and figure 7 run in real time, on a PostgreSQL that the command starts: make servers, and the extra
`postgresql`. Figure 7 also runs on embedded shards. Shards runs in real time, too, on new embedded stores, or on five
FoundationDB clusters. Systems take turns, round by round. Build is `bench.index_build`. Figures 4 to 6 run in simulated
time, because the disk and the cores of one machine do not grow with the number of shards.

Read in this order:
    workload     random requests, with keys from pools
    operations   requests as operations of the protocol
    systems      what carries requests out in real time, and latencies
    postgresql   a server, a plain table with unique indexes, and tables as shards
    stores_on_shards   stores of the common storage model on embedded shards
    garbage      stores with a given ratio of garbage index records
    measuring    table 1 and figure 7
    shards       records of an application on shards
    build        an index that is built beside users
    simulated    the protocol's own code in simulated time
    scaling      figures 4 and 5
    outage       figure 6
    published    the numbers in the paper's text
    page, data, sections   docs/paper/uniqorn.md
May import: the product, bench.figures, bench.index_build, bench.peers' servers, the plots and tables of bench.paper and
bench.olive_page.
"""
