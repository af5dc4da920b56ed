"""All orders of the statements of two executors of a step, a cleanup and FLOOR, on a real server.

stepping    processes that stop before each statement of the functions in SQL
scene       a run whose step is in SQL: its executors, what its home knows, its cleanup
test_orders
"""
