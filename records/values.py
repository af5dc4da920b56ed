"""Values of records: plain data, or instances of a type, packed; and the fields by which a record is found."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.records.errors import RecordUnreadable
from fairlead.zones.errors import BadArgument

V = TypeVar("V")

VALUE_BYTES_MAX = 90_000  # Of a packed value: a record and its keys are one value of a store, at most 100,000 bytes.
KEY_OVERHEAD_BYTES = 5  # Of each key, as it is packed.
RECORD_BYTES_MAX = 99_000  # Of a packed value and its keys. The rest is for what the protocol adds.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
ALLOWED = "plain data: a dict whose keys are texts"


class Values(Generic[V]):
    """Packs values of one type of records. `type`: a `msgspec.Struct` or dataclass; None: values are dicts."""

    def __init__(self, type: type[V] | None) -> None:
        self.type = type
        self._allowed = ALLOWED if type is None else f"an instance of {type.__qualname__}, with values of its types"
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: Any = msgspec.msgpack.Decoder(dict[str, Any] if type is None else type)

    def pack(self, value: V) -> bytes:
        """Return a value packed.

        Raises:
          BadArgument: it is no instance of the type, or no plain data, or too long; or it could not be read back,
            because a field has a value of another type than is declared.
        """
        if not isinstance(value, dict if self.type is None else self.type):
            raise BadArgument(argument="value", value=value, allowed=self._allowed)
        try:
            packed: bytes = self._encoder.encode(value)
        except (TypeError, ValueError, OverflowError, UnicodeEncodeError, RecursionError) as error:
            raise BadArgument(argument="value", value=value, allowed=ALLOWED, reason=str(error)) from None
        try:
            self._decoder.decode(packed)
        except UNREADABLE as error:
            raise BadArgument(argument="value", value=value, allowed=self._allowed, reason=str(error)) from None
        if len(packed) > VALUE_BYTES_MAX:
            raise BadArgument(argument="value", value=f"{len(packed)} bytes", allowed=f"{VALUE_BYTES_MAX} bytes packed")
        return packed

    def unpack(self, key: str, packed: bytes) -> V:
        """Return a value that was packed.

        Raises:
          RecordUnreadable: it is none of this type.
        """
        try:
            value: V = self._decoder.decode(packed)
        except UNREADABLE as error:
            raise RecordUnreadable(key=key, newer=False, reason=str(error)) from None
        return value


def place_in_value(type: type[Any] | None, name: str) -> str | int:
    """Return where a field is in a packed value: its name there; or its position, if values are packed as arrays.

    Raises:
      BadArgument: the type has no such field.
    """
    if type is None or not issubclass(type, msgspec.Struct):
        return name
    config = type.__struct_config__
    for position, field in enumerate(msgspec.structs.fields(type)):
        if field.name == name:
            return position + (config.tag is not None) if config.array_like else field.encode_name
    raise BadArgument(argument="field", value=name, allowed=f"a field of {type.__qualname__}")


def check_size(packed: bytes, keys: Sequence[bytes]) -> None:
    """See that a packed value and the alternate keys of its record are one value of a store.

    Raises:
      BadArgument: they are too long together.
    """
    size = len(packed) + sum(len(each) + KEY_OVERHEAD_BYTES for each in keys)
    if size > RECORD_BYTES_MAX:
        allowed = f"{RECORD_BYTES_MAX} bytes packed, with all its alternate keys"
        raise BadArgument(argument="value", value=f"{size} bytes with {len(keys)} alternate keys", allowed=allowed)


def values_of(value: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of some fields; None: the record has none in this field."""
    if isinstance(value, Mapping):
        return {name: value.get(name) for name in names}
    return {name: getattr(value, name, None) for name in names}
