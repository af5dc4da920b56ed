"""Search for tenants by the beginning of their names.

Tenants are not listed anywhere: a tenant exists while it has keys. So each name is found by a read of its own, which
jumps over all keys of the tenant before (a skip-scan).
"""

from collections.abc import Iterator
from itertools import islice

from fairlead.zones.engines import Reader
from fairlead.zones.keyspace import DB, ROOT, TenantKeys, pack_int, pack_text, range_begin, range_end, unpack_names
from fairlead.zones.layout import Tenant, split_tenant

APPS_MAX = 20  # Apps that are listed by their beginning, and apps in which a user is searched for if no app is given.

_DB = ROOT + pack_int(DB)


def find_tenants(tr: Reader, text: str, *, tenants_max: int) -> tuple[list[Tenant], bool]:
    """Return tenants whose names begin with `text`, and whether these are all.

    `APP/USER`, written as tenants are printed, means users of one app. Otherwise `text` is the beginning of an app, of
    which the first `APPS_MAX` are read, or of a user in the first `APPS_MAX` apps. Snapshot reads, one for each name.
    """
    first, *users = split_tenant(text)
    if users:
        found = list(islice(_users(tr, first, users[0]), tenants_max + 1))
        return found[:tenants_max], len(found) <= tenants_max
    named = list(islice(_names(tr, _DB, first, whole=True), APPS_MAX + 1)) if first else []
    apps = list(islice(_apps(tr), APPS_MAX + 1))
    found = []
    for app in named[:APPS_MAX]:
        found += islice(_users(tr, app, ""), tenants_max + 1 - len(found))
    for app in apps[:APPS_MAX]:
        if app not in named:
            found += islice(_users(tr, app, first), tenants_max + 1 - len(found))
    whole = len(found) <= tenants_max and max(len(named), len(apps)) <= APPS_MAX
    return found[:tenants_max], whole


def has_keys(tr: Reader, tenant: Tenant) -> bool:
    """Say whether a tenant has any key here: data, a queue, a policy, a note of where it lives. One snapshot read."""
    prefix = TenantKeys(*tenant).prefix
    rows = tr.snapshot.get_range(range_begin(prefix), range_end(prefix), limit=1)
    return next(iter(rows), None) is not None


def all_tenants(tr: Reader, *, after: Tenant | None, tenants_max: int) -> list[Tenant]:
    """Return up to so many tenants that have keys here, in the order of their names, from behind `after` on.

    Snapshot reads, one for each name. Also those of whom only a note is left that says where they live.
    """
    found: list[Tenant] = []
    apps = _apps(tr) if after is None else _names(tr, _DB, after.app)
    for app in apps:
        behind = after is not None and app == after.app
        users = _names(tr, _DB + pack_text(app), after.user + "\x01" if behind and after is not None else "")
        for user in users:
            found.append(Tenant(app, user))
            if len(found) == tenants_max:
                return found
    return found


def _apps(tr: Reader) -> Iterator[str]:
    return _names(tr, _DB, "\x01")  # The app of local items has an empty name.


def _users(tr: Reader, app: str, prefix: str) -> Iterator[Tenant]:
    return (Tenant(app, user) for user in _names(tr, _DB + pack_text(app), prefix, whole=True))


def _names(tr: Reader, before: bytes, first: str, *, whole: bool = False) -> Iterator[str]:
    """Yield the names that follow `before` in keys, from `first` on; if `whole`, only those that begin with it."""
    begin = before + pack_text(first)[:-1]
    end = begin + b"\xff" if whole else range_end(before)
    while True:
        row = next(iter(tr.snapshot.get_range(begin, end, limit=1)), None)
        if row is None:
            return
        found = unpack_names(row.key, len(before), 1)
        if found is None:  # The key is damaged.
            begin = row.key + b"\x00"
        else:
            yield found[0][0]
            begin = range_end(row.key[: found[1]])
