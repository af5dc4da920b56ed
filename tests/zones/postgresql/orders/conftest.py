"""Without psycopg these tests are not collected: processes are made of its connections."""

from importlib.util import find_spec

collect_ignore = ["test_orders.py"] if find_spec("psycopg") is None else []
