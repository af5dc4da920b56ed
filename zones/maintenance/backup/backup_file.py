"""The backup file: a header, compressed pairs, a trailer, a checksum.

    16 bytes   the words "fairlead backup" and a line feed
    4 bytes    length of the header, big-endian
    header     msgpack: see `Header`
    zlib stream of
        pairs      4 bytes length of the key, 4 bytes length of the value, key, value
        trailer    a pair whose key is empty; its value is msgpack: see `Trailer`
    32 bytes   BLAKE2b of everything before

The checksum is at the end. A truncated or damaged file has none, or a wrong one, and is refused as a whole before
anything is written.
"""

import zlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import Annotated, BinaryIO, NamedTuple

import msgspec
from msgspec import Meta

from fairlead.zones.errors import BackupRefused
from fairlead.zones.keyspace import PART_COUNT_MAX
from fairlead.zones.records import UNDECODABLE, TimeUs

MAGIC = b"fairlead backup\n"
FILE_FORMAT = 1
DIGEST_BYTES = 32
HEADER_BYTES_MAX = 65_536
READ_BYTES = 262_144

NOT_A_BACKUP = "the file is not a backup"
NEWER = "a newer version of fairlead made it"
DAMAGED = "the file is truncated or damaged"

Pair = tuple[bytes, bytes]


class Header(msgspec.Struct, frozen=True):
    """What a reader must know before it reads the pairs. Fields may be added."""

    file_format: int
    record_format: int
    shard_id: bytes
    part_count: Annotated[int, Meta(ge=1, le=PART_COUNT_MAX)]
    began_us: TimeUs


class Trailer(msgspec.Struct, frozen=True):
    """What is known only at the end. Fields may be added."""

    pairs: int
    torn: int
    one_version: bool
    ended_us: int


class BackupInfo(NamedTuple):
    """What a backup holds, and as of when.

    `one_version`: it is the shard as it was at one instant between `began_us` and `ended_us`. If not, each tenant's
    logical database is, except `torn` of them that were too large to be read at once.
    """

    shard_id: bytes
    part_count: int
    pairs: int
    torn: int
    one_version: bool
    began_us: int
    ended_us: int


def pack_pair(key: bytes, value: bytes) -> bytes:
    """Return a pair as it is written to the file, before compression."""
    return len(key).to_bytes(4, "big") + len(value).to_bytes(4, "big") + key + value


class BackupWriter:
    """Writes a backup file from front to end."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self._compressor = zlib.compressobj()
        packed = msgspec.msgpack.encode(header)
        self._write(MAGIC + len(packed).to_bytes(4, "big") + packed)

    def add(self, packed_pairs: bytes) -> None:
        """Append pairs that `pack_pair` packed."""
        self._write(self._compressor.compress(packed_pairs))

    def finish(self, trailer: Trailer) -> None:
        """Append the end. A file without it cannot be restored."""
        self.add(pack_pair(b"", msgspec.msgpack.encode(trailer)))
        self._write(self._compressor.flush())
        self._file.write(self._digest.digest())
        self._file.flush()

    def _write(self, packed: bytes) -> None:
        self._digest.update(packed)
        self._file.write(packed)


def read_header(file: BinaryIO) -> Header:
    """Return the header of a backup file, and leave `file` behind it.

    Raises:
      BackupRefused: it is not a backup, is damaged, or a newer version made it.
    """
    file.seek(0)
    magic = file.read(len(MAGIC))
    if magic != MAGIC:
        raise BackupRefused(reason=DAMAGED if MAGIC.startswith(magic) else NOT_A_BACKUP)
    length = int.from_bytes(file.read(4), "big")
    if length > HEADER_BYTES_MAX:
        raise BackupRefused(reason=DAMAGED)
    try:
        header = msgspec.msgpack.decode(file.read(length), type=Header)
    except UNDECODABLE:
        raise BackupRefused(reason=DAMAGED) from None
    if header.file_format > FILE_FORMAT:
        raise BackupRefused(reason=NEWER)
    return header


def check_digest(file: BinaryIO) -> None:
    """Read the whole file and compare its checksum.

    Raises:
      BackupRefused: it is truncated or damaged.
    """
    left = file.seek(0, 2) - DIGEST_BYTES
    file.seek(0)
    digest = blake2b(digest_size=DIGEST_BYTES)
    while left > 0:
        piece = file.read(min(left, READ_BYTES))
        if not piece:
            break
        digest.update(piece)
        left -= len(piece)
    if left != 0 or file.read(DIGEST_BYTES) != digest.digest():
        raise BackupRefused(reason=DAMAGED)


def read_pairs(file: BinaryIO) -> Iterator[Pair]:
    """Yield the pairs of a file whose checksum is right, the trailer last: its key is empty.

    Raises:
      BackupRefused: its content is damaged although the checksum is right.
    """
    read_header(file)
    decompressor = zlib.decompressobj()
    buffer = b""
    while True:
        at = 0
        while len(buffer) - at >= 8:
            key_end = at + 8 + int.from_bytes(buffer[at : at + 4], "big")
            end = key_end + int.from_bytes(buffer[at + 4 : at + 8], "big")
            if end > len(buffer):
                break
            yield buffer[at + 8 : key_end], buffer[key_end:end]
            at = end
        if decompressor.eof:
            return
        piece = file.read(READ_BYTES)
        if not piece:
            raise BackupRefused(reason=DAMAGED)
        try:
            buffer = buffer[at:] + decompressor.decompress(piece)
        except zlib.error:
            raise BackupRefused(reason=DAMAGED) from None


def read_trailer(packed: bytes) -> Trailer:
    """Return the trailer in the value of the last pair.

    Raises:
      BackupRefused: the value is not a trailer.
    """
    try:
        return msgspec.msgpack.decode(packed, type=Trailer)
    except UNDECODABLE:
        raise BackupRefused(reason=DAMAGED) from None
