"""Every order of the accesses of a few clients to the stores, over the real protocol (section 7 of the design).

enumeration   the search: which client makes its next access, with a stop for ever before and after each
scenes        what clients do, by name, and the stores that they begin with
test_orders   all orders of each scene; each guard removed, and found
"""
