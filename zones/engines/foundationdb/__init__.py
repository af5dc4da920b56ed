"""The FoundationDB engine, through the official binding. Importing this folder loads nothing; importing `engine` does.

engine        the binding, opened
write_bursts  writes that a transaction buffers and does together
direct_calls  a transaction's calls of the client library, without the binding's overhead
"""
