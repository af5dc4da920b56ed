"""The demo: real work on input that every machine has, the Python standard library's own source.

Each top-level module or package is a tenant. Each file is stored in its tenant's database, and the same transaction
enqueues an item that indexes it. Consumers on Ray build each tenant's inverted word index, exactly once. A worker
process is killed half-way. At the end, the index is compared with one computed directly.

Read in this order:
    corpus        the files and their words; pure
    application   the application: how a file is stored, and the handler that indexes it
    demo_run      the run: start, store, kill, wait, stop
    result_check  the stored index compared with one computed directly
"""
