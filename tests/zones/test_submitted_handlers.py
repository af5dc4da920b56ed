"""The newest version of a submitted handler is in force, and versions only go up."""

from __future__ import annotations

import pytest

from fairlead.zones import submitted_handlers
from fairlead.zones.errors import BadArgument
from fairlead.zones.keyspace import HANDLER, ROOT, pack_int, pack_text
from fairlead.zones.submitted_handlers import CODE_BYTES_MAX, HandlerTooLarge
from tests.zones.world import World


def sign(kind: str, version: int, code: bytes) -> bytes:
    return f"{kind} {version} {len(code)}".encode()


def submit(world: World, kind: str, code: bytes, *, above: int = 0) -> int:
    return world.run(lambda tr: submitted_handlers.submit(tr, kind, code, sign=sign, above=above, now_us=world.now_us))


def in_force(world: World) -> dict[str, tuple[int, bytes, bytes]]:
    found = world.run(submitted_handlers.listing)
    return {record.kind: (record.version, record.code, record.signature) for record in found}


def test_the_newest_version_of_each_kind_is_in_force(world: World) -> None:
    assert [submit(world, "mail", b"one"), submit(world, "mail", b"two"), submit(world, "index", b"x")] == [1, 2, 1]
    assert in_force(world) == {"mail": (2, b"two", b"mail 2 3"), "index": (1, b"x", b"index 1 1")}


def test_a_version_is_above_what_other_shards_know(world: World) -> None:
    assert submit(world, "mail", b"one", above=300) == 301
    assert submit(world, "mail", b"two", above=7) == 302
    assert in_force(world)["mail"][0] == 302


def test_kinds_whose_names_begin_alike_are_kept_apart(world: World) -> None:
    submit(world, "mail", b"one")
    submit(world, "mail2", b"two")
    submit(world, "mail", b"three")
    assert {kind: code for kind, (_, code, _) in in_force(world).items()} == {"mail": b"three", "mail2": b"two"}


def test_of_two_that_submit_at_once_one_comes_after_the_other(world: World) -> None:
    one, other = world.db.create_transaction(), world.db.create_transaction()
    for tr in (one, other):
        submitted_handlers.submit(tr, "mail", b"x", sign=sign, above=0, now_us=world.now_us)
    one.commit().wait()
    with pytest.raises(world.db.errors):
        other.commit().wait()


def test_code_that_does_not_fit_a_value_is_refused_and_nothing_is_changed(world: World) -> None:
    submit(world, "mail", bytes(CODE_BYTES_MAX))
    with pytest.raises(HandlerTooLarge):
        submit(world, "mail", bytes(CODE_BYTES_MAX + 1))
    assert in_force(world)["mail"][0] == 1


def test_a_kind_must_be_a_name(world: World) -> None:
    with pytest.raises(BadArgument):
        submit(world, "", b"x")


def test_a_record_of_a_newer_format_is_skipped_and_not_reused(world: World) -> None:
    world.set(ROOT + pack_int(HANDLER) + pack_text("mail") + pack_int(5), b"\x02new")
    assert in_force(world) == {}
    assert submit(world, "mail", b"x") == 6
