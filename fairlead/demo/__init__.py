"""The demo: real work on input that every machine has, the Python standard library's own source.

Each top-level module or package is a tenant. Each file is stored in its tenant's database, and the same transaction
enqueues an item that indexes it; consumers on Ray build each tenant's inverted word index, exactly once; a worker
process is killed half-way; and the result is compared with one computed directly.

Read in this order:
    corpus        the files and their words; pure
    application   the application: how a file is stored, and the handler that indexes it
    demo_run      the show: start, store, kill, wait, stop
    result_check  what came out against what should have
"""
