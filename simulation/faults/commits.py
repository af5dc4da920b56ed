"""Faults of a shard: commits are refused without cause, of unknown result, late, or too old; it is unavailable."""

from __future__ import annotations

from functools import partial

from fairlead.simulation.faults.fault import Fault
from fairlead.simulation.store import Fate, SimulatedStore


class CommitFault(Fault):
    """A fault of commits, each with a drawn probability."""

    def set_up(self) -> None:
        """See `Fault`."""
        self._frac = self.random.choice([0.01, 0.1, 0.3])
        self._commits_at_stop: dict[str, int] = {}
        for store in self.cluster.stores.values():
            store.draw_fate.append(self._draw)

    def stop(self) -> None:
        """See `Fault`."""
        super().stop()
        self._commits_at_stop = {name: store.commits for name, store in self.cluster.stores.items()}

    def check(self) -> str | None:
        """Check that every shard has applied commits since the fault stopped, because clients retry."""
        for name, store in self.cluster.stores.items():
            if store.commits == self._commits_at_stop[name]:
                return f"no commit was applied on {name} since"
            if store.late_commits:
                return f"{store.late_commits} commits are still on their way to {name}"
        return None

    def draw(self) -> Fate:
        """Draw the fate of a commit."""
        raise NotImplementedError

    def _draw(self) -> Fate:
        return self.draw() if self.strikes(self._frac) else Fate.DECIDED


class Conflicts(CommitFault):
    """Commits are refused with 1020 without a change, as FoundationDB's resolvers may do."""

    def draw(self) -> Fate:
        """See `CommitFault`."""
        return Fate.CONFLICT


class UnknownResults(CommitFault):
    """Commits end with 1021, applied or not."""

    def draw(self) -> Fate:
        """See `CommitFault`."""
        return self.random.choice([Fate.UNKNOWN_APPLIED, Fate.UNKNOWN_LOST])


class LateCommits(CommitFault):
    """Commits end with 1021 or 1031 while they are still on their way, and may be applied seconds later."""

    def draw(self) -> Fate:
        """See `CommitFault`."""
        return self.random.choice([Fate.UNKNOWN_LATE, Fate.TIMED_OUT_LATE])


class OldTransactions(CommitFault):
    """Reads and commits are refused with 1007: their read version is too old."""

    def set_up(self) -> None:
        """See `Fault`."""
        super().set_up()
        self._read_frac = self._frac / 10  # A transaction has one commit, and many reads.
        for store in self.cluster.stores.values():
            store.forgets_version.append(lambda: self.strikes(self._read_frac))

    def draw(self) -> Fate:
        """See `CommitFault`."""
        return Fate.TOO_OLD


class Recoveries(CommitFault):
    """A shard is unavailable for seconds (FoundationDB section 4.2: median 3.1 s, 90th percentile 5.3 s).

    Commits that arrive meanwhile end with 1021; read versions wait.
    """

    def set_up(self) -> None:
        """See `Fault`."""
        self._commits_at_stop = {}
        for store in self.cluster.stores.values():
            store.draw_fate.append(partial(self._draw_at, store))
        self.at_random_times(self.random.choice([4e6, 10e6]), self._go_away)

    def _go_away(self) -> None:
        store = self.random.choice(list(self.cluster.stores.values()))
        away_us = int(self.random.lognormvariate(1.13, 0.42) * 1e6)
        self.strike_count += 1
        self.cluster.world.note(f"{store.name} is unavailable for {away_us} us")
        store.unavailable_until_us = self.cluster.world.now_us() + away_us

    def _draw_at(self, store: SimulatedStore) -> Fate:
        if store.unavailable_until_us <= self.cluster.world.now_us():
            return Fate.DECIDED
        return self.random.choice([Fate.UNKNOWN_APPLIED, Fate.UNKNOWN_LOST])
