"""Alternate keys: what a record can be found by, and how that is packed into the keys of index records.

    field name, value               a field that is unique: at most one record has the value
    field name, value, primary key  a field for lookup: any number of records have it

How values are packed: `fairlead.zones.index_values`.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from fairlead.records.errors import RecordError
from fairlead.zones import tuples
from fairlead.zones.errors import BadArgument
from fairlead.zones.index_values import IndexValue, check_index_name, check_value, encoded, pack_value
from fairlead.zones.keyspace import pack_bytes, pack_text, unpack_bytes

RESERVED = "fairlead."  # Names of types that begin so are those of unique items, and the like.
ARGUMENTS = ("keep", "limit", "self")  # Of methods that take a field by its name, such as `find_all`.
KEY_BYTES_MAX = 128  # of a primary key
PLAIN_BYTES_MAX = 66  # A packed value that is longer, once its NULs are escaped, is hashed.
_NESTED, _HASHED = b"\x05", b"\xff"  # How a hashed value begins: here, and in `pack_value`.

AlternateValue = IndexValue


class UnknownNormalizer(RecordError):
    """A field is normalized in a way that this program does not know, so it must not write such records.

    Do: upgrade this program.
    """

    message = "this program does not know how the field is normalized"


NORMALIZERS: dict[str, Callable[[AlternateValue], AlternateValue]] = {
    "": lambda value: value,
    "casefold": lambda value: value.casefold() if isinstance(value, str) else value,
}


class Field(NamedTuple):
    """One field by which records are found.

    Attributes:
      is_unique: no two records have the same value.
      normalizer: the name of what is done to values before they are compared; "": nothing.
    """

    name: str
    is_unique: bool
    normalizer: str = ""

    @property
    def how(self) -> str:
        """How records are found by it, for people."""
        return ", ".join(filter(None, ("unique" if self.is_unique else "lookup", self.normalizer)))


def check_type_name(name: Any) -> str:
    """Return the name of a type of records, checked.

    Raises:
      BadArgument: it is no text of 1 to 32 bytes without NUL, or it is reserved.
    """
    checked = check_index_name("name", name)
    if checked.startswith(RESERVED):
        allowed = f"a name that does not begin with {RESERVED}, which is reserved"
        raise BadArgument(argument="name", value=name, allowed=allowed)
    return checked


def declared_fields(unique: Sequence[str], lookup: Sequence[str], normalizers: Mapping[str, str]) -> tuple[Field, ...]:
    """Return the fields that a program declares.

    Raises:
      BadArgument: a name is empty, too long, an argument's, or is given twice; a normalizer is unknown, or of another
        field.
    """
    for argument, names in (("unique", unique), ("lookup", lookup)):
        if isinstance(names, str):
            raise BadArgument(argument=argument, value=names, allowed='a list of names, such as ("email",)')
    for name, normalizer in normalizers.items():
        if name not in (*unique, *lookup):
            raise BadArgument(argument="normalize", value={name: normalizer}, allowed="a declared field")
        if normalizer not in NORMALIZERS:
            known = ", ".join(each for each in NORMALIZERS if each)
            raise BadArgument(argument="normalize", value=normalizer, allowed=known)
    for name in (*unique, *lookup):
        if name in ARGUMENTS:
            allowed = "another name: an argument of find_all or resolve has this one"
            raise BadArgument(argument="field", value=name, allowed=allowed)
    fields = [
        Field(check_index_name("field", name), is_unique, normalizers.get(name, ""))
        for is_unique, names in ((True, unique), (False, lookup))
        for name in names
    ]
    names = [each.name for each in fields]
    if len(set(names)) < len(names):
        raise BadArgument(argument="unique, lookup", value=names, allowed="each field once")
    return tuple(fields)


def pack_unique(field: Field, value: AlternateValue) -> bytes:
    """Return the index key of a value of a unique field.

    Raises:
      BadArgument: the value is no text, bytes or whole number; or is empty, or too long.
      UnknownNormalizer: see there.
    """
    return pack_text(field.name) + _packed_value(field, normalized(field, value))


def pack_lookup(field: Field, value: AlternateValue, key: str) -> bytes:
    """Return the index key of a value of a field for lookup. Raises what `pack_unique` does."""
    return pack_unique(field, value) + pack_text(key)


def index_keys(fields: Mapping[str, Field], key: str, values: Mapping[str, Any]) -> tuple[bytes, ...]:
    """Return the index keys of a record; None in a field, or no such field, is no key. Raises as `pack_unique`."""
    packed = []
    for field in fields.values():
        value = values.get(field.name)
        if value is None:
            continue
        packed.append(pack_unique(field, value) if field.is_unique else pack_lookup(field, value, key))
    return tuple(packed)


def normalized(field: Field, value: AlternateValue) -> AlternateValue:
    """Return a value as it is compared.

    Raises:
      BadArgument, UnknownNormalizer: see `pack_unique`.
    """
    check_value(field.name, value)
    normalize = NORMALIZERS.get(field.normalizer)
    if normalize is None:
        raise UnknownNormalizer(field=field.name, normalizer=field.normalizer)
    return normalize(value)


def field_of(index_key: bytes) -> str:
    """Return the name of the field of an index key."""
    return index_key[1 : _field_end(index_key)].decode()


def value_part(index_key: bytes) -> bytes:
    """Return the part of an index key that states field and value, without the primary key.

    All index keys that begin with it lie in one slot.
    """
    end = index_key.index(b"\x00", _field_end(index_key) + 1)
    while index_key[end + 1 : end + 2] == b"\xff":  # An escaped NUL of the value.
        end = index_key.index(b"\x00", end + 2)
    return index_key[: end + 1]


def value_of(index_key: bytes) -> AlternateValue | None:
    """Return the value that an index key states, as it is compared; None if it is hashed."""
    packed = unpack_bytes(value_part(index_key)[_field_end(index_key) + 1 :])
    return None if packed[:1] in (_NESTED, _HASHED) else tuples.unpack(packed)[0]


def _field_end(index_key: bytes) -> int:
    """Return where the name of the field ends, which holds no NUL."""
    return index_key.index(b"\x00")


def check_key(key: Any) -> str:
    """Return a primary key, checked.

    Raises:
      BadArgument: it is no text of 1 to 128 bytes without NUL.
    """
    if not isinstance(key, str) or not key or "\x00" in key or len(encoded("key", key)) > KEY_BYTES_MAX:
        raise BadArgument(argument="key", value=key, allowed=f"text of 1 to {KEY_BYTES_MAX} bytes, without NUL")
    return key


def _packed_value(field: Field, value: AlternateValue) -> bytes:
    packed = pack_value(field.name, value)
    plain = pack_bytes(packed)
    return plain if len(plain) <= PLAIN_BYTES_MAX else pack_bytes(_HASHED + sha256(packed).digest())
