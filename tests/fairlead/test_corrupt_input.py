"""Thousands of garbled settings, variables, names and ids: only documented errors are raised.

The other half of the ten thousand cases of `tests/zones/test_corrupt_records.py`, with seeds of the same form.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fairlead import App, BadArgument, BadConfig, Config
from fairlead.config import load, settings_of
from fairlead.zones.errors import QueueError
from tests.fairlead.shell import run
from tests.zones.test_corrupt_records import cases, damaged, each

TOML = b"""
shards = "embedded:./data"
part_count = 16
signing_key = "a key of twenty characters"
[consumer]
slots = 32
lease_ms = 20_000
selection = "partitioned"
[zones]
max_sleep_ms = 300_000
"""
WORDS = (
    "", "0", "-1", "1e9", "nan", "true", "\x00", "~nobody/x", "embedded:", "embedded:\x00", "embedded:~nobody/x",
    "fdb:\x00", "memory:", "ä" * 200, "\ud800", "9" * 5_000, "[]", "{}", "20_000", " 7 ", "consumer.slots",
    "%s%n", "../..",
)  # fmt: skip
VARIABLES = (
    "FAIRLEAD_SHARDS", "FAIRLEAD_SHARDS__EU", "FAIRLEAD_CONSUMER__SLOTS", "FAIRLEAD_ZONES__MAX_SLEEP_MS", "FAIRLEAD_X",
    "FAIRLEAD_SIGNING_KEY", "FAIRLEAD_LOG_LEVEL", "FAIRLEAD_SUBMISSIONS", "FAIRLEAD___", "FAIRLEAD_CONFIG",
)  # fmt: skip


def word(random: Random) -> str:
    """Draw a text: a plausible one, or a garbled one."""
    if random.random() < 0.7:
        return random.choice(WORDS)
    return damaged(random.choice(WORDS).encode(errors="replace"), random)[:500].decode(errors="replace")


@pytest.mark.usefixtures("empty_directory")
@cases(700)
def test_a_garbled_file_is_refused_or_a_configuration(tmp_path: Path, count: int) -> None:
    file = tmp_path / "fairlead.toml"

    def case(random: Random) -> None:
        file.write_bytes(damaged(TOML, random))
        with suppress(BadConfig):
            settings_of(load(path=file, environ={}))

    each(count, 600, case)


@pytest.mark.usefixtures("empty_directory")
@cases(700)
def test_garbled_variables_and_arguments_are_refused_or_a_configuration(count: int) -> None:
    def case(random: Random) -> None:
        environ = {random.choice(VARIABLES): word(random) for _ in range(2)}
        arguments = {random.choice(("shards", "consumer.slots", "zones", word(random))): word(random)}
        with suppress(BadConfig, BadArgument):
            settings_of(load(random.choice(({}, arguments)), environ=environ))

    each(count, 700, case)


@cases(700)
def test_garbled_names_ids_and_terms_are_refused_or_taken(count: int) -> None:
    app = App(config=Config(shards={"main": "memory:"}))

    def case(random: Random) -> None:
        def any_of(*values: Any) -> Any:
            return random.choice(
                (*values, word(random), word(random).encode(errors="replace"), None, -1, 2.5, [], 2**70)
            )

        with suppress(QueueError):
            tenant = app.tenant(any_of("shop"), any_of("alice"))
            item_id = any_of("order-7", bytes(16))
            tenant.enqueue(
                any_of("mail"), any_of({"a": 1}), item_id=item_id, delay=any_of(0, 0.005), priority=any_of(3)
            )
            tenant.cancel(item_id)
        with suppress(QueueError):
            app.explain(any_of("order-7"))
        with suppress(QueueError):
            app.control.limit_kind(any_of("mail"), max_running=any_of(3), per_s=any_of(0.5), burst=any_of(3))

    each(count, 800, case)
    app.close()


COMMANDS: tuple[Callable[[str], list[str]], ...] = (
    lambda typed: ["why", typed],
    lambda typed: ["cancel", typed, "--tenant", "shop", "alice"],
    lambda typed: ["dead-letters", "retry", typed, "--tenant", "shop", typed],
    lambda typed: ["enqueue", "mail", typed, "--tenant", "shop", "alice"],
    lambda typed: ["enqueue", typed, "--local", "--delay", typed],
    lambda typed: ["quarantine", "--discard", typed],
    lambda typed: ["peek", "--tenant", typed, typed],
    lambda typed: ["limit", "--kind", "mail", "--per-s", typed],
    lambda typed: ["pause", "--shard", typed],
    lambda typed: ["config", "--set", typed],
    lambda typed: ["config", "--set", f"consumer.slots={typed}"],
    lambda typed: ["status", "--store", typed],
    lambda typed: ["status", "--app", typed],
    lambda typed: ["backup", typed],
    lambda typed: ["restore", typed],
)


@pytest.mark.usefixtures("empty_directory")
@cases(450)
def test_every_garbled_command_line_ends_with_a_sentence_and_an_exit_code(empty_directory: Path, count: int) -> None:
    (empty_directory / "fairlead.toml").write_text('shards = "embedded:./data"\n')
    run("enqueue", "mail", "--create", "--tenant", "shop", "alice")

    def case(random: Random) -> None:
        # As a program is given it: no NUL, and of what is no text only what `os.fsdecode` makes of bytes.
        typed = os.fsdecode(word(random).encode(errors="replace").replace(b"\0", b""))
        if typed == "-":
            return
        answer = run(*random.choice(COMMANDS)(typed))
        assert answer.code in (0, 1, 2, 3, 4)
        assert "Traceback" not in answer.err

    each(count, 900, case)
