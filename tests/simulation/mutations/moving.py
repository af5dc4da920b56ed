"""Bugs in moves of tenants: each removes a guard of `tests/protocol_models/move.py`, or one beside them.

The stories of `tests/zones/moving/test_guards.py` plant all of them. These are those that worlds find, too.
"""

from fairlead.simulation.bank.world import SERIALIZABLE, SETTLED, run_bank
from fairlead.simulation.oracles.bank import MoneyStays, StatementsComeOnce
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.oracles.spanning import LocksHaveTransactions
from fairlead.zones import ownership
from fairlead.zones.moving import clearing, destination, marks, rescue, source
from fairlead.zones.moving.mover import Mover
from tests.simulation.mutations.mutation import mutation

WHOLE = TenantsMoveWhole.promise
_NO_BUGS = "no call fails by a bug"
_TORN = (WHOLE, SERIALIZABLE, MoneyStays.promise, StatementsComeOnce.promise)

MOVING = (
    mutation(
        "a transaction on a tenant that moves marks nothing",
        (marks.MarkingTransaction._write_mark, "if begin < end:", "if False:"),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a mark is cleared whether or not its range was written anew",
        (marks.clear_marks, "tr.compare_and_clear(mark.key, mark.value)", "tr.clear(mark.key)"),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "transactions go on while their tenant is frozen",
        (ownership.check_owner, "if owner.move.phase is MovePhase.FROZEN:", "if False:"),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a tenant is frozen although a transaction across shards has locked it",
        (source.freeze, "if owner.locks:", "if False:"),
        found_by=(*_TORN, SETTLED, LocksHaveTransactions.promise),
        world=run_bank,
    ),
    mutation(
        "the source says that a tenant has moved before the destination owns it",
        (Mover._hand_over, "last = self._copy_last()", "last = self._copy_last(); self._say_moved()"),
        found_by=(WHOLE,),
        world=run_bank,
    ),
    mutation(
        "a move is taken back and its destination stays open",
        (Mover._take_back, "if not self._close():", "if False:"),
        found_by=(WHOLE,),
        world=run_bank,
    ),
    mutation(
        "who finds a tenant frozen for long thaws it, and leaves the destination open",
        (rescue.end_frozen_move, "if not closed:", "if False:"),
        (destination.close, "owner.move = msgspec.structs.replace(owner.move, mover=NOBODY)", "pass"),
        found_by=(WHOLE,),
        world=run_bank,
    ),
    mutation(
        "an earlier mover goes on at the destination",
        (
            destination.is_incoming,
            "(move.move_id, move.mover) == (mine.move_id, mine.mover)",
            "move.move_id == mine.move_id",
        ),
        (source.note, " or record.mover != mine.mover", ""),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "what a tenant has left is not cleared",
        (clearing.clear_piece, "tr.clear_range(begin, end)", "pass"),
        found_by=(WHOLE,),
        world=run_bank,
    ),
    mutation(
        "the stub at the first home is not updated",
        (destination.update_stub, "if owner is None or owner.epoch <= epoch:", "if False:"),
        found_by=(*_TORN, SETTLED, _NO_BUGS),
        world=run_bank,
    ),
)
