"""What a step is called, the digest of its arguments, and the ids that are drawn from it: the same in every attempt."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from fairlead.zones.errors import BadArgument, PayloadNotData, PayloadTooLarge
from fairlead.zones.keyspace import pack_int, pack_text
from fairlead.zones.layout import ID_BYTES, check_name
from fairlead.zones.queue.items import pack_payload
from fairlead.zones.workflow.run_records import StepKind
from fairlead.zones.workflow.step_log import StepName

DIGEST_BYTES = 8
NAMES_MAX = 1_024  # Of steps, whose check is not repeated.
UNDO = "undo "  # Begins the name of the step that undoes another one.
CANCEL = "cancel "  # Begins the name of the step that cancels a child.


def name_of(function: Callable[..., Any], name: str | None) -> str:
    """Return the name of a step: the one that was given, or that of its function.

    Raises:
      BadArgument: see `given_name`; or there is none.
    """
    found = name if name is not None else getattr(function, "__name__", None)
    if found is None:
        raise BadArgument(argument="name", value=found, allowed="text; a function without a name needs it")
    return _checked_name(found) if type(found) is str else given_name(found, "")


def given_name(name: str | None, default: str) -> str:
    """Return the name that a step was given; None: `default`.

    Raises:
      BadArgument: it is no name, or that of an undo.
    """
    if name is None:
        return default
    if check_name("name", name).startswith((UNDO, CANCEL)):
        raise BadArgument(argument="name", value=name, allowed=f"text that begins neither with {UNDO!r} nor {CANCEL!r}")
    return name


@lru_cache(maxsize=NAMES_MAX)
def _checked_name(name: str) -> str:
    """Return a name if a step may have it. Cached, because the runs of a workflow have steps of the same names."""
    return given_name(name, "")


def digest_of(kind: StepKind, arguments: Sequence[Any]) -> bytes:
    """Return the digest by which a change of the workflow's code is noticed. Of what is no plain data, the type counts.

    `arguments`: what the step was called with; its function is not among them: it may be renamed or changed.
    """
    hashed = blake2b(bytes([kind]), digest_size=DIGEST_BYTES)
    for each in arguments:
        try:
            hashed.update(pack_payload(each))
        except (PayloadNotData, PayloadTooLarge):
            hashed.update(type(each).__qualname__.encode())
    return hashed.digest()


def id_of(run: bytes, segment: int, step: StepName) -> bytes:
    """Return 16 bytes that no other step of any run has: the id of the item that a step enqueues."""
    named = pack_int(segment) + pack_text(step.name) + pack_int(step.occurrence)
    return blake2b(run + named, digest_size=ID_BYTES).digest()


def call_name(segment: int, name: str) -> str:
    """Return under which name a child reports its end: a call of a later segment is another one."""
    return f"{name}@{segment}" if segment else name


def step_of_call(segment: int, call: str) -> str:
    """Return the name of the step that a call of a segment is; see `call_name`."""
    return call.removesuffix(f"@{segment}") if segment else call


def idempotency_key(run: bytes, segment: int, step: StepName) -> str:
    """Return the key of an effect, 32 hexadecimal digits: the same each time that the effect is called."""
    return id_of(run, segment, step).hex()


def keyword_arguments(payload: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return what a workflow's function gets for the payload of its item, besides `wf`."""
    if isinstance(payload, dict) and all(isinstance(name, str) for name in payload):
        return (), payload
    return ((), {}) if payload is None else ((payload,), {})
