"""Figure 3 of the paper, line by line: Alice is slow, and Bob takes the e-mail address that she was about to take.

The stores are as in the figure after each of its lines. Two lines of the figure are one access here: a collection
deletes Alice's index record, and Bob inserts his; the protocol replaces one by the other.
"""

from __future__ import annotations

from typing import Any

from fairlead.records.accesses import Access, DeleteRecord, Op, ReadIndex, ReadRecord, WriteIndex, WriteRecord, run_op
from fairlead.records.errors import Interrupted, RecordError
from fairlead.records.protocol import Protocol
from fairlead.records.storage_model.memory import MemoryStore
from fairlead.records.storage_model.performing import ModelStores
from fairlead.records.stored import pack
from tests.records.orders.scenes import dummy, entry, key_of, keys_of, real

A, B = 1, 2  # The generations of both records.
ALICES_DUMMY, BOBS_DUMMY = dummy(A, "a"), dummy(B, "a")
ALICES_ENTRY, BOBS_ENTRY = entry("1", A, 0), entry("2", B, 0)
# Who goes on, by which access; what the data store and the index store hold afterwards.
LINES: list[tuple[str, type[Access], dict[str, Any], dict[str, Any]]] = [
    ("alice", WriteRecord, {"1": ALICES_DUMMY}, {}),
    ("alice", WriteIndex, {"1": ALICES_DUMMY}, {"a": ALICES_ENTRY}),
    ("bob", WriteRecord, {"1": ALICES_DUMMY, "2": BOBS_DUMMY}, {"a": ALICES_ENTRY}),
    # The address is in use.
    ("bob", WriteIndex, {"1": ALICES_DUMMY, "2": BOBS_DUMMY}, {"a": ALICES_ENTRY}),
    # The collection.
    ("bob", ReadIndex, {"1": ALICES_DUMMY, "2": BOBS_DUMMY}, {"a": ALICES_ENTRY}),
    ("bob", ReadRecord, {"1": ALICES_DUMMY, "2": BOBS_DUMMY}, {"a": ALICES_ENTRY}),
    ("bob", DeleteRecord, {"2": BOBS_DUMMY}, {"a": ALICES_ENTRY}),
    ("bob", WriteIndex, {"2": BOBS_DUMMY}, {"a": BOBS_ENTRY}),
    ("bob", WriteRecord, {"2": real(B, 1, "a")}, {"a": BOBS_ENTRY}),
    # Alice goes on, and fails.
    ("alice", WriteRecord, {"2": real(B, 1, "a")}, {"a": BOBS_ENTRY}),
    # She removes nothing of Bob's.
    ("alice", ReadIndex, {"2": real(B, 1, "a")}, {"a": BOBS_ENTRY}),
    ("alice", DeleteRecord, {"2": real(B, 1, "a")}, {"a": BOBS_ENTRY}),
]


class Client:
    """A client that makes one access at a time.

    Attributes:
      ended: what its operation has returned or raised; None: it goes on.
    """

    def __init__(self, operation: Op[Any]) -> None:
        self.ended: Any = None
        self._operation = operation
        self._accesses = next(operation)

    def go(self, by: type[Access], stores: ModelStores) -> None:
        """Make the next access, which is to be of this type."""
        assert [type(each) for each in self._accesses] == [by]
        try:
            self._accesses = self._operation.send(stores.perform(self._accesses))
        except StopIteration as stop:
            self.ended = stop.value
        except RecordError as error:
            self.ended = error


def test_bob_collects_what_alice_who_is_slow_has_inserted() -> None:
    data, index = MemoryStore(), MemoryStore()
    stores, protocol = ModelStores([data], [index]), Protocol()
    clients = {
        "alice": Client(protocol.create_op("1", keys_of("a"), b"", bytes([A]))),
        "bob": Client(protocol.create_op("2", keys_of("a"), b"", bytes([B]))),
    }
    for who, by, records, entries in LINES:
        clients[who].go(by, stores)
        assert data.rows == {key.encode(): pack(record) for key, record in records.items()}
        assert index.rows == {key_of(name): pack(found) for name, found in entries.items()}
    assert clients["bob"].ended == real(B, 1, "a")
    assert isinstance(clients["alice"].ended, Interrupted)
    assert run_op(protocol.find_op(key_of("a")), stores.perform) == ("2", real(B, 1, "a"))
