"""What every engine offers to its callers, with the interface of the FoundationDB binding.

Read in this order:
    database    the interface: a database, its transactions, and their futures
    errors      what goes wrong, under the numbers of FoundationDB
    retry       `transact`, the one retry loop
    committing  whether some work waits for its commit
    progress    how a supervised loop reports progress
    clock       the time, as an argument
    lost_watch  why a watch ended without a change
"""
