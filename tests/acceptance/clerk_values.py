"""The keys and values that clerks of `records_shop` use. Whoever imports this leaves the product as it is."""

from __future__ import annotations

OWN_KEYS = 6
CITIES = ("Ulm", "Bonn", "Kiel")
VALUES = 16  # Of each unique field; all clerks want them.
UNIQUE_KEYS = 6
SHOPS = 4
STOP = "stop"


def shop(number: int) -> str:
    """Return a tenant that lives on one shard or the other."""
    return f"shop/user {number % SHOPS}"


def people_of(clerk: int) -> list[str]:
    """Return the primary keys that a clerk owns."""
    return [f"{clerk}.{each}" for each in range(OWN_KEYS)]


def email(number: int) -> str:
    """Return a value of the field `email`."""
    return f"{number}@x.com"
