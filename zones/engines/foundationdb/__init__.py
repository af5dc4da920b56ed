"""The FoundationDB engine, through the official binding. Importing this folder loads nothing; importing `engine` does.

engine        the binding, opened
write_bursts  writes that a transaction keeps and does together
direct_calls  the calls of every transaction, without the detours of the binding
"""
