"""Programs with the recorded answers of a real FoundationDB, and an interpreter that runs them on any engine.

`recorded_answers.jsonl.xz` holds one program a line: `{"seed", "style", "steps", "answers"}`. They were recorded on
FoundationDB 7.3.79 through the official binding at API version 730. A program is included only if two runs agreed. Each
step is `[op, transaction, ...]`. The answer at position i belongs to step i; `{"error": code}` is an error. Keys are
recorded without their common prefix. Keys and values are hexadecimal.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.zones.engines import Database, StreamingMode
from fairlead.zones.engines.api.errors import error_code

PREFIX = b"\x15answers/"
ALL = b"\x15answers0"
FIRED_WITHIN_MS = 2_000


def programs() -> list[dict[str, Any]]:
    """Return all recorded programs."""
    packed = Path(__file__).with_name("recorded_answers.jsonl.xz").read_bytes()
    return [json.loads(line) for line in lzma.decompress(packed).splitlines()]


class Interpreter:
    """Runs one program step by step on an empty key space."""

    def __init__(self, db: Database, sleep_us: Callable[[int], None]) -> None:
        self._db = db
        self._sleep_us = sleep_us
        self._transactions: dict[str, Any] = {}
        self._named: dict[str, Any] = {}

    def run(self, steps: list[list[Any]]) -> list[Any]:
        """Return the answer to each step."""
        return [self._answer(op, args) for op, *args in steps]

    def _answer(self, op: str, args: list[Any]) -> Any:
        try:
            if op in ("dump", "dump_sizes", "stamps", "stamp_of", "sleep", "fired", "begin"):
                return getattr(self, op)(*args)
            return getattr(self, op)(self._transactions[args[0]], *args[1:])
        except self._db.errors as error:
            return {"error": error_code(error)}

    # --- Transactions ---

    def begin(self, name: str) -> None:
        self._transactions[name] = self._db.create_transaction()

    def commit(self, tr: Any) -> str:
        tr.commit().wait()
        return "ok"

    commit_keep = commit

    def commit_or_on_error(self, tr: Any) -> Any:
        try:
            return self.commit(tr)
        except self._db.errors as error:
            tr.on_error(error).wait()
            return ["retry", error_code(error)]

    def on_error(self, tr: Any, code: int) -> None:
        tr.on_error(self._error(code)).wait()

    def cancel(self, tr: Any) -> None:
        tr.cancel()

    def reset(self, tr: Any) -> None:
        tr.reset()

    def option(self, tr: Any, name: str) -> None:
        getattr(tr.options, f"set_{name}")()

    def option_int(self, tr: Any, name: str, number: int) -> None:
        getattr(tr.options, f"set_{name}")(number)

    def read_version(self, tr: Any) -> None:
        tr.get_read_version().wait()

    def set_read_version(self, tr: Any, delta: int) -> None:
        tr.set_read_version(self._db.create_transaction().get_read_version().wait() + delta)

    def committed_version(self, tr: Any) -> str:
        return "positive" if tr.get_committed_version() > 0 else "negative"

    def approximate_size(self, tr: Any) -> str:
        return "positive" if tr.get_approximate_size().wait() > 0 else "zero"

    # --- Reads ---

    def get(self, tr: Any, key: str, snapshot: bool) -> str | None:
        value = (tr.snapshot if snapshot else tr).get(_key(key)).value
        return None if value is None else value.hex()

    def get_range(self, tr: Any, begin: str, end: str, limit: int, reverse: bool, snapshot: bool) -> list[list[str]]:
        reader = tr.snapshot if snapshot else tr
        return _pairs(reader.get_range(_key(begin), _key(end), limit=limit, reverse=reverse))

    def get_raw(self, tr: Any, key: str) -> Any:
        return tr.get(bytes.fromhex(key)).value

    def get_range_raw(self, tr: Any, begin: str, end: str, limit: int) -> int:
        return len(list(tr.get_range(bytes.fromhex(begin), bytes.fromhex(end), limit=limit)))

    def get_sized(self, tr: Any, key_bytes: int) -> int | None:
        value = tr.get(PREFIX.ljust(key_bytes, b"\x00")).value
        return None if value is None else len(value)

    def get_sized_value(self, tr: Any, key: str) -> int | None:
        value = tr.get(_key(key)).value
        return None if value is None else len(value)

    # --- Writes ---

    def set(self, tr: Any, key: str, value: str) -> None:
        tr.set(_key(key), bytes.fromhex(value))

    def set_raw(self, tr: Any, key: str, value: str) -> None:
        tr.set(bytes.fromhex(key), bytes.fromhex(value))

    def set_sized(self, tr: Any, key_bytes: int, value_bytes: int) -> None:
        tr.set(PREFIX.ljust(key_bytes, b"\x00"), bytes(value_bytes))

    def fill(self, tr: Any, count: int, value_bytes: int) -> None:
        for number in range(count):
            tr.set(PREFIX + number.to_bytes(7, "big"), bytes(value_bytes))

    def clear(self, tr: Any, key: str) -> None:
        tr.clear(_key(key))

    def clear_range(self, tr: Any, begin: str, end: str) -> None:
        tr.clear_range(_key(begin), _key(end))

    def clear_range_raw(self, tr: Any, begin: str, end: str) -> None:
        tr.clear_range(bytes.fromhex(begin), bytes.fromhex(end))

    def atomic(self, tr: Any, name: str, key: str, param: str) -> None:
        getattr(tr, name)(_key(key), bytes.fromhex(param))

    def set_versionstamped_key(self, tr: Any, key: str, offset: int | None, value: str) -> None:
        start = _key(key)
        offset = len(start) if offset is None else offset
        tr.set_versionstamped_key(start + bytes(10) + offset.to_bytes(4, "little"), bytes.fromhex(value))

    def set_versionstamped_value(self, tr: Any, key: str, offset: int) -> None:
        tr.set_versionstamped_value(_key(key), bytes(10) + b"tail" + offset.to_bytes(4, "little"))

    # --- Conflicts ---

    def read_conflict_key(self, tr: Any, key: str) -> None:
        tr.add_read_conflict_key(_key(key))

    def write_conflict_key(self, tr: Any, key: str) -> None:
        tr.add_write_conflict_key(_key(key))

    def read_conflict_range(self, tr: Any, begin: str, end: str) -> None:
        tr.add_read_conflict_range(_key(begin), _key(end))

    def write_conflict_range(self, tr: Any, begin: str, end: str) -> None:
        tr.add_write_conflict_range(_key(begin), _key(end))

    # --- Futures ---

    def watch(self, tr: Any, key: str, name: str) -> None:
        self._named[name] = tr.watch(_key(key))

    def versionstamp(self, tr: Any, name: str) -> None:
        self._named[name] = tr.get_versionstamp()

    def fired(self, name: str) -> bool:
        for _ in range(FIRED_WITHIN_MS // 10):
            if self._named[name].is_ready():
                return True
            self._sleep_us(10_000)
        return False

    def stamp_of(self, name: str, key: str) -> bool:
        stamp = self._named[name].value
        found = list(self._db.create_transaction().get_range(_key(key), _key(key) + b"\xff"))
        return bool(found[0].key[-10:] == stamp or found[0].value[:10] == stamp)

    # --- The store ---

    def dump(self) -> list[list[str]]:
        return _pairs(self._everything())

    def dump_sizes(self) -> list[list[int]]:
        return [[len(key) - len(PREFIX), len(value)] for key, value in self._everything()]

    def stamps(self) -> list[Any]:
        ends = [key[-10:] for key, _ in self._everything()]
        return ["increasing" if ends == sorted(set(ends)) else "not increasing", len(ends)]

    def sleep(self, seconds: float) -> None:
        self._sleep_us(int(seconds * 1_000_000))

    def _everything(self) -> list[tuple[bytes, bytes]]:
        return list(self._db.create_transaction().get_range(PREFIX, ALL, streaming_mode=StreamingMode.want_all))

    def _error(self, code: int) -> Exception:
        return self._db.errors[0](code)


def _key(key: str) -> bytes:
    return PREFIX + bytes.fromhex(key)


def _pairs(rows: Any) -> list[list[str]]:
    return [[key[len(PREFIX) :].hex(), value.hex()] for key, value in rows]
