"""Bugs in snapshots: each removes a guard, as the stories of `tests/zones/snapshots/test_guards.py` do."""

from fairlead.simulation.bank.world import run_bank
from fairlead.simulation.oracles.snapshots import RESTORED_WHOLE, SnapshotsKeepTheirState
from fairlead.zones.snapshots import copying, merging, restoring, snapshot_list
from fairlead.zones.tenant_transaction import TenantTransaction
from tests.simulation.mutations.mutation import in_a_race, mutation

_OTHERWISE = (SnapshotsKeepTheirState.promise, RESTORED_WHOLE)

SNAPSHOTS = (
    mutation(
        "a user's transaction reads by snapshot which snapshots its tenant has",
        (TenantTransaction.get, "owner, read = self._tr.get(", "owner, read = self._tr.snapshot.get("),
        (
            TenantTransaction.get_range,
            "else self._tr.get(self._keys.owner)",
            "else self._tr.snapshot.get(self._keys.owner)",
        ),
        (
            TenantTransaction._careful_writer,
            "self._check_owner(self._tr.get(",
            "self._check_owner(self._tr.snapshot.get(",
        ),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
    mutation(
        "a transaction that has taken a snapshot copies nothing for it",
        (TenantTransaction.snapshot, "self._copy_for(snapshots)", "pass"),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
    mutation(
        "a write after an enqueue does not look for the snapshots of its tenant",
        (
            TenantTransaction._enqueue,
            "tr = self._queue_writer()",
            "tr = self._queue_writer(); self._owner_is_checked = self._owner_is_known = True",
        ),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
    mutation(
        "a range is cleared and not copied for snapshots",
        (copying.CopyingWriter.clear_range, "if self._prefixes:", "if False:"),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
    mutation(
        "a write does not look for copies at a dropped snapshot",
        (copying.CopyingWriter.__init__, "copied_to(snapshots)]", "copied_to(snapshots)[:1]]"),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
    mutation(
        "a read at a snapshot does not look through dropped ones",
        (
            snapshot_list.numbers_from,
            "for each in snapshots.listed if each.number >= number",
            "for each in kept(snapshots) if each.number >= number",
        ),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
    mutation(
        "a copy of a dropped snapshot replaces that of the older one",
        (merging._move, "if not read.present():", "if True:"),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
    mutation(
        "the newest dropped snapshot is merged first, past another dropped one",
        (
            merging.merge_piece,
            "number = listed[len(elders)].number",
            "number = [each.number for each in listed if each.dropped_us][-1]\n"
            "    elders = [each.number for each in listed if not each.dropped_us and each.number < number]",
        ),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
    mutation(
        "a restore copies nothing for later snapshots",
        (restoring.restore_piece, "writer = CopyingWriter(tr, keys, snapshots, limits)", "writer = tr"),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
    mutation(
        "a tenant can be read and written while it is restored",
        (snapshot_list.usable_snapshots, "if snapshots is not None and snapshots.restore is not None:", "if False:"),
        found_by=_OTHERWISE,
        world=run_bank,
    ),
)
SNAPSHOTS_IN_RACES = (
    in_a_race(
        "a process goes on with a later restore in the place of its own",
        (restoring.restore_piece, " or snapshots.restore.id != restore_id:", ":"),
    ),
    in_a_race(
        "a restore looks by snapshot for workflows that are under way",
        (restoring._run_under_way, "logged = tr.get_range(", "logged = tr.snapshot.get_range("),
        (restoring._run_under_way, "fenced = tr.get_range(", "fenced = tr.snapshot.get_range("),
    ),
)
