"""Bugs in moves of tenants: each removes a guard of `tests/protocol_models/move.py`, or one beside them.

The stories of `tests/zones/moving/test_guards.py` plant all of them, and worlds find most. Those that worlds seldom
find are planted by races, too (`races/test_moves`). Three have their stories only: a tenant that comes in by a later
move counts as owned, which needs three shards; a tenant moves on before it has arrived; a source is cleared whoever
owns it.
"""

from fairlead.simulation.bank.world import SERIALIZABLE, SETTLED, run_bank
from fairlead.simulation.oracles.bank import MoneyStays, StatementsComeOnce
from fairlead.simulation.oracles.consistency import CountsEqualItems
from fairlead.simulation.oracles.found_by_keys import KeysFindItems, SearchesMissNothing
from fairlead.simulation.oracles.moving import TenantsMoveWhole
from fairlead.simulation.oracles.spanning import LocksHaveTransactions
from fairlead.zones import ownership, transaction_runner
from fairlead.zones.maintenance.integrity import checker, counts, homes, residents
from fairlead.zones.moving import clearing, copying, destination, marks, rescue, source
from fairlead.zones.moving.mover import Mover
from fairlead.zones.queue import claims
from fairlead.zones.tenant_transaction import TenantTransaction
from fairlead.zones.top_level import process_pointers
from tests.simulation.mutations.mutation import in_a_race, mutation

WHOLE = TenantsMoveWhole.promise
_NO_BUGS = "no call fails by a bug"
_TORN = (WHOLE, SERIALIZABLE, MoneyStays.promise, StatementsComeOnce.promise)
_NOT_REPLACED = (
    (destination._replace, "tr.clear_range(each.begin, each.end)", "pass"),
    (copying.first_difference, "    singles = [", "    return None\n    singles = ["),
)

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
        "what a tenant holds is not listed in the index of its new shard",
        (destination._list_other_row, "local_index.list_row(tr, keys, row.key)", "pass"),
        found_by=(KeysFindItems.promise, SearchesMissNothing.promise),
    ),
    mutation(
        "the destination does not count a move for readers of all shards",
        (destination.arrive, "local_index.count_move(tr)", "pass"),
        found_by=(SearchesMissNothing.promise,),
    ),
    mutation(
        "the stub at the first home is not updated",
        (destination.update_stub, "if owner is None or owner.epoch <= epoch:", "if False:"),
        found_by=(*_TORN, SETTLED, _NO_BUGS),
        world=run_bank,
    ),
    mutation(
        "a plain transaction reads the owner of its tenant by snapshot",
        (TenantTransaction.get, "owner, read = self._tr.get(", "owner, read = self._tr.snapshot.get("),
        (
            TenantTransaction.get_range,
            "else self._tr.get(self._keys.owner)",
            "else self._tr.snapshot.get(self._keys.owner)",
        ),
        (
            TenantTransaction._careful_writer,
            "self._check_owner(self._tr.get(self._keys.owner))",
            "self._check_owner(self._tr.snapshot.get(self._keys.owner))",
        ),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a chunk of unknown result may be applied after later ones",
        (destination.write_chunk, "if owner.move.chunk == chunk:", "if False:"),
        (destination.write_chunk, "if owner.move.chunk != chunk - 1:", "if False:"),
        (destination.write_chunk, "    write_owner(tr, keys, owner)", "    pass"),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "the destination takes what comes whether or not the tenant comes in",
        (destination.is_incoming, "move is not None\n", "True or move is not None\n"),
        found_by=(*_TORN, SETTLED, CountsEqualItems.promise),
        world=run_bank,
    ),
    mutation(
        "a destination forgets that it is closed before the source is thawed",
        (
            destination.close,
            "owner.move = msgspec.structs.replace(owner.move, mover=NOBODY)",
            "owner.move, owner.epoch = None, epoch",
        ),
        (
            destination.close,
            "write_owner(tr, keys, owner)",
            "write_owner(tr, keys, owner) if is_first_home(layout, keys) else tr.clear(keys.owner)",
        ),
        found_by=(WHOLE,),
        world=run_bank,
    ),
    mutation(
        "a mover whose decision has no answer lets the source go on",
        (
            Mover._own,
            "        except MoverReplaced:",
            """\
        except self._to.db.errors:
            self._in_source(lambda tr: source.unfreeze(tr, self._at.layout, self._tenant, self._mine))
            raise
        except MoverReplaced:""",
        ),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a chunk does not replace its range",
        *_NOT_REPLACED,
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a destination is not emptied, and a chunk does not replace its range",
        (
            Mover._copy,
            "self._clear(self._to, lambda owner: destination.is_incoming(owner, self._mine))",
            "pass",
        ),
        *_NOT_REPLACED,
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a tenant lives wherever there is no record of it",
        (ownership.check_owner, "if is_first_home(layout, keys):", "if True:"),
        found_by=_TORN,
        world=run_bank,
    ),
    mutation(
        "a retry does not look for its own receipt before its body runs",
        (transaction_runner.run, "if results and was_applied(tr):", "if False:"),
        found_by=_TORN,
        world=run_bank,
    ),
)
MOVING_IN_RACES = (
    in_a_race(
        "a tenant arrives where it only comes in",
        (destination.arrive, "owner.move.phase is not MovePhase.ARRIVING", "False"),
    ),
    in_a_race(
        "a move begins in the epoch of the one before",
        (source.begin, "record.epoch = owner.epoch = owner.epoch + 1", "record.epoch = owner.epoch"),
    ),
    in_a_race(
        "a begin of a move forgets an ended move that has begun again",
        (source._forget_ended, "tr.add_read_conflict_key(key)", "pass"),
    ),
    in_a_race(
        "a mover of an ended move does not know its epoch",
        (Mover.run, "self._epoch = record.epoch", "self._epoch = record.epoch * (record.state is MoveState.UNDER_WAY)"),
    ),
    in_a_race(
        "a late mover clears the keys of the claims that a later move is to end",
        (Mover._clear_claims, "owner.epoch == self._epoch + 1", "owner.epoch > self._epoch"),
    ),
    in_a_race(
        "a visit leaves all pointers of a tenant that comes in",
        (process_pointers.drop_moved, "external_zone(location.name) is not None and ", ""),
    ),
    in_a_race(
        "a lease of a pointer does not look where its tenant lives",
        (process_pointers.lease, "check_owner(tr, layout, keys, owner.value)", "pass"),
    ),
    in_a_race(
        "a late mover clears what a later move is to clear",
        (Mover._clear, "if left_behind and ", "if False and "),
    ),
    in_a_race(
        "a record of a move of a newer version is taken for a lost one",
        (source.is_of_newer_version, "return value is not None and ", "return False and "),
    ),
    in_a_race(
        "a repair of a tenant that moves writes no marks",
        (residents.lives_here, "if writes:", "if False:"),
    ),
    in_a_race(
        "a check takes no notice of homes of runs that move while it looks for them",
        (homes._without_home, "_move_counts(shards) == before", "True"),
    ),
    in_a_race(
        "a repair goes on for a tenant that has moved away",
        (checker._check_of_resident, "if lives_here(tr, layout, each.key, writes=writes and not is_busy):", "if True:"),
    ),
    in_a_race(
        "a recount of a shard leaves out a tenant that arrives",
        (counts.recount_of_shard, "with_arriving=True", "with_arriving=False"),
    ),
    in_a_race(
        "a session that ends forgets its claims on items that have moved",
        (claims._release_op, "return 0", "records = [Outcome.GONE] * len(held)"),
    ),
    in_a_race(
        "marks are cleared before what they name is copied",
        (
            Mover._copy_round,
            "marks, copied = self._read_marked()",
            "marks, copied = self._read_marked(); self._in_source(lambda tr: self._clear_marks(tr, marks))",
        ),
    ),
    in_a_race(
        "who only reads goes on while the tenant is frozen",
        (
            ownership.check_owner,
            "if owner.move.phase is MovePhase.FROZEN:",
            "if writes and owner.move.phase is MovePhase.FROZEN:",
        ),
    ),
    in_a_race(
        "an earlier mover goes on at the source",
        (source.note, " or record.mover != mine.mover", ""),
    ),
)
