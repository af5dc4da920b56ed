"""Bugs in claims and worker sessions: each removes one guard of the protocol.

The guards that only a single interleaving needs are removed in `races/test_worker_sessions`; so is the one by which a
heartbeat finds its session ended, because pauses of a worker with claims are seldom that long. That a worker releases
claims of items that it does not hold any more is tested with a store that refuses (`tests/actors/test_claims`). Which
looks count is tested look by look (`tests/zones/test_silence`): a seed seldom has a worker that is silent meanwhile.
"""

from fairlead.actors.housekeeping.silent_sessions import SilentSessions
from fairlead.simulation.oracles.claims import ClaimsHaveKeys, SessionsLastAsLongAsTheirHeartbeats
from fairlead.simulation.oracles.leases import LeasesAreRespected
from fairlead.simulation.run import DRAINS
from fairlead.zones.queue import claims
from fairlead.zones.top_level import worker_sessions
from fairlead.zones.top_level.silence import Silence
from tests.simulation.mutations.mutation import mutation

KEYS = ClaimsHaveKeys.promise
HEARTBEATS = SessionsLastAsLongAsTheirHeartbeats.promise
HELD_BY_ONE = LeasesAreRespected.promise

CLAIMS = (
    mutation(
        "a claim is made under an earlier lease",
        (
            claims.claim_op,
            "yield from check_leases_op(tr, location, held)",
            "yield from check_leases_op(tr, location, [(item_id, None) for item_id, _ in held])",
        ),
        found_by=[HELD_BY_ONE],
    ),
    mutation(
        "a claim writes no key",
        (worker_sessions.add_claim, 'tr.set(claim_key(session_id, location, item_id), b"")', "pass"),
        found_by=[KEYS],
    ),
    mutation(
        "an item is claimed under a session that has ended",
        (worker_sessions.session_state_op, "if alive.value is not None:", "if alive.value is not None or not begins:"),
        found_by=[KEYS],
    ),
    mutation(
        "a session is ended after two looks at the same heartbeat",
        (Silence.note, "if looks >= LOOKS", "if looks >= 2"),
        found_by=[HEARTBEATS],
    ),
    mutation(
        "the claims of a session are released although it has not ended",
        (SilentSessions.look, "[*silent, *seen.over]", "[*seen.beats, *seen.over]"),
        (SilentSessions.look, "session_id not in seen.beats or self._ends(session_id, seen.beats[session_id])", "True"),
        found_by=[HELD_BY_ONE, KEYS],
    ),
    mutation(
        "an ended session is not listed until its claims are released",
        (worker_sessions.end_session_op, 'tr.set(_key(_OVER, session_id), b"")', "pass"),
        found_by=[KEYS],
    ),
    mutation(
        "a claim that is taken away leaves its key behind",
        (worker_sessions.take_away, "tr.clear(claim_key(record.claim, location, item_id))", "pass"),
        found_by=[KEYS],
    ),
    mutation(
        "a released claim stays in its record",
        (claims._release_op, 'record.claim = b""', "pass"),
        found_by=[KEYS],
    ),
    mutation(
        "no consumer ends the session of a dead worker",
        (SilentSessions.look, "self._silence.note(seen.beats, now_us=looked_us)", "()"),
        found_by=[HEARTBEATS, DRAINS],
    ),
)
