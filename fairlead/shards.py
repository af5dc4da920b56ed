"""The shards of an application: every store by name, opened when it is first used."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import TypeVar

from fairlead.lock_threads import LockThreads
from fairlead.parallel_calls import ParallelCalls, RunsCalls
from fairlead.store_threads import AwaitableCalls, StoreThreads
from fairlead.workflows.lock_keeper import LockKeeper
from fairlead.zones import engines
from fairlead.zones.engines import Clock, Database, StoreError, transact
from fairlead.zones.errors import QueueError, ShardRefused, TenantMoved
from fairlead.zones.keyspace import META_KEY
from fairlead.zones.layout import DEFAULT_ZONE, Tenant
from fairlead.zones.ownership import check_home
from fairlead.zones.placement import check_placement, home, read_or_write_placement
from fairlead.zones.process_lock import ProcessLock
from fairlead.zones.records import PlacementRecord
from fairlead.zones.settings import ZoneSettings
from fairlead.zones.shard import Shard, open_shard

log = logging.getLogger("fairlead.shards")

T = TypeVar("T")

MOVES_MAX = 8  # So often a call follows its tenant; one that moves more often meanwhile is about to move again.
DISAGREE = (
    "it states that its application began with the shards {mine}, and the others state {theirs}: the one that was made"
    " later, with a wrong url of an older shard, must be deleted"
)
UNKNOWN_OWNER = "it lives on a shard that is not configured, or cannot be opened"
NAME_ALL = "name all shards in the configuration; `fairlead status --json` prints their ids, of which `owner` is one"
MOVED_MAX = 4_096  # Tenants away from their first homes that a process remembers; about 300 bytes each.


class NoShards(QueueError):
    """There is no store to work on.

    Do: pass one to the application, `App("embedded:./data")`; or name it on the command line, `--store
    embedded:./data` or, if it has one, `--app shop:app`; or write `shards = "embedded:./data"` into fairlead.toml, in
    the directory in which the program starts, or into another file that `FAIRLEAD_CONFIG` or `--config` names.
    """

    message = "no shards are configured"


class UnknownShard(QueueError):
    """The application has no shard of this name.

    Do: use one of the names in `known`, or add the shard to the configuration.
    """

    message = "no shard of this name"


class StoreMissing(QueueError):
    """There is no Fairlead store at this url, and the operation only reads or changes what exists.

    Do: check the url. A new store is made by `fairlead enqueue --create`, by `fairlead run`, and by the first call of
    an application that uses it.
    """

    message = "there is no store here"


class Shards(Mapping[str, Shard]):
    """The shards by name. Safe to use from many threads; each process opens its own.

    Args:
      urls: the stores by name.

    Attributes:
      must_exist: refuse a store that does not exist instead of making it; False at first.
      calls: how coroutines wait for the stores.
      parallel: runs calls on several shards at once.
      clock: the time.
      check_kind: called with the kind of each item that is enqueued; may refuse it. None: all kinds are accepted.
      on_store_created: called with a sentence that names the new store's path. Default: a warning in the log, which a
        program without logging prints on standard error.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        *,
        clock: Clock,
        random: Random,
        settings: ZoneSettings,
        part_count: int,
    ) -> None:
        self.urls = dict(urls)
        self.clock = clock
        self.random = random
        self._settings = settings
        self._part_count = part_count
        self.must_exist = False
        self.check_kind: Callable[[str], None] | None = None
        self.on_store_created: Callable[[str], None] = log.warning
        self.calls: AwaitableCalls = StoreThreads()
        self.parallel: RunsCalls = ParallelCalls()
        self._lock_keeper = LockKeeper(self.at_home, random, LockThreads())
        self._open: dict[str, Shard] = {}
        self._first_shards: tuple[str, ...] = ()  # with which the application began, as every shard stores it
        self._moved: dict[Tenant, str] = {}  # where tenants live who were not at their first home when last looked for
        self._lock = ProcessLock()

    @property
    def locks(self) -> LockKeeper:
        """What keeps the locks that this process holds outside of workflows."""
        return self._lock_keeper

    def __getitem__(self, name: str) -> Shard:
        """Return a shard, opened.

        Raises:
          UnknownShard: there is none of this name.
          StoreUnavailable, ShardRefused, StoreMissing: it cannot be opened.
        """
        shard = self._open.get(name)
        if shard is not None:
            return shard
        if name not in self.urls:
            raise UnknownShard(shard=name, known=sorted(self.urls))
        with self._lock:
            if name not in self._open:
                self._open[name] = self._opened(name, self.urls[name])
            return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.urls)

    def __len__(self) -> int:
        return len(self.urls)

    def store(self, name: str) -> Database:
        """Return the store of a shard, opened, without making it a shard: a backup is restored into an empty one.

        Raises:
          UnknownShard: there is none of this name.
          StoreUnavailable: it cannot be opened.
        """
        if name not in self.urls:
            raise UnknownShard(shard=name, known=sorted(self.urls))
        return engines.open(self.urls[name], clock=self.clock, random=self.random)

    def home(self, tenant: Tenant) -> Shard:
        """Return the shard where `tenant` lives.

        Raises:
          NoShards: there are none.
        """
        if len(self.urls) == 1:
            return self[next(iter(self.urls))]
        first_shards_known = bool(self._first_shards)
        shard = self[self.home_name(tenant)]
        # The first shard that is opened tells with which shards the application began.
        return shard if first_shards_known else self[self.home_name(tenant)]

    def home_name(self, tenant: Tenant) -> str:
        """Return the name of the shard where `tenant` was last found, or else of its first home. Opens nothing.

        The tenant may have moved since: then the shard answers `TenantMoved`; see `note_moved`. Before any shard is
        open, a shard that was added later may be named.

        Raises:
          NoShards: there are none.
        """
        if not self.urls:
            raise NoShards
        names = list(self.urls)
        if len(names) == 1:
            return names[0]
        return self._moved.get(tenant) or home(tenant, self._first_shards or names)

    def find(self, tenant: Tenant) -> Shard:
        """Return the shard where `tenant` lives now, as the shard says. Reads one key there.

        Raises:
          NoShards: there are none.
          TenantMoved: it moves on and on, or lives on a shard that is not configured.
        """
        return self.at_home(tenant, lambda shard: _asked(shard, tenant))

    def at_home(self, tenant: Tenant, call: Callable[[Shard], T]) -> T:
        """Return what `call` returns for the shard of `tenant`; call it again if the tenant lives elsewhere by now.

        A shard that refuses a transaction because the tenant has moved has changed nothing.

        Raises:
          NoShards, TenantMoved: see `find`.
        """
        for _ in range(MOVES_MAX):
            try:
                return call(self.home(tenant))
            except TenantMoved as moved:
                if not self.note_moved(moved):
                    raise _named(moved) from None
        return call(self.home(tenant))

    def named(self, moved: TenantMoved) -> TenantMoved:
        """Return the error of a call that has given up: it names the shard, if that is not configured."""
        return moved if self.note_moved(moved) else _named(moved)

    def note_moved(self, moved: TenantMoved) -> bool:
        """Note where a tenant lives now, as the shard says that refused it; False: there is no other shard to ask.

        Opens shards until one has the id that is named.
        """
        tenant = Tenant(*moved.tenant)
        if moved.first_home is not None:
            self._moved.pop(tenant, None)
            return moved.first_home in self.urls
        name = None if moved.owner is None else self._name_of(moved.owner)
        if name is None:
            return False
        if len(self._moved) >= MOVED_MAX:
            self._moved.clear()
        self._moved[tenant] = name
        return True

    def follow(self, moved: TenantMoved) -> Shard | None:
        """Return the shard where a tenant lives now, as the shard says that refused it; None: there is none to ask."""
        return self.home(Tenant(*moved.tenant)) if self.note_moved(moved) else None

    def with_id(self, shard_id: bytes) -> Shard | None:
        """Return the shard that has an id, opened; None: there is none, or it cannot be opened now."""
        name = self._name_of(shard_id.hex())
        return None if name is None else self[name]

    def _name_of(self, shard_id: str) -> str | None:
        """Return the name of the shard that has an id. One that cannot be opened is passed over."""
        for name in self.urls:
            try:
                if self[name].layout.shard_id.hex() == shard_id:
                    return name
            except (StoreError, StoreMissing, ShardRefused) as error:
                log.info("shard %s is not asked for its id: %s", name, error)
        return None

    def errors(self) -> set[type[Exception]]:
        """Return the classes that the stores opened so far raise."""
        return {kind for shard in self._open.values() for kind in shard.db.errors}

    def close(self) -> None:
        """Close all stores. A store that is used again is opened again."""
        self._lock_keeper.close()
        with self._lock:
            for shard in self._open.values():
                shard.db.close()
            self._open.clear()
        self.calls.close()
        self.parallel.close()

    def _opened(self, name: str, url: str) -> Shard:
        if self.must_exist and is_missing(url):
            raise StoreMissing(shard=name, url=url)
        db = engines.open(url, clock=self.clock, random=self.random)
        if self.must_exist and not _holds_a_shard(db):
            db.close()
            raise StoreMissing(shard=name, url=url)
        shard = open_shard(
            name,
            db,
            clock=self.clock,
            random=self.random,
            settings=self._settings,
            part_count=self._part_count,
            first_shards=() if self.must_exist else self._first_shards_for(name, db),
        )
        if (placement := shard.layout.placement) is not None:
            if not self.must_exist:  # A tool may be pointed at any stores, under any names.
                try:
                    check_placement(placement, name, self.urls)
                    self._check_first_shards(placement)
                except ShardRefused:
                    db.close()
                    raise
            if set(placement.first_shards) <= set(self.urls):
                self._first_shards = placement.first_shards
        shard.run_blocking, shard.find_shard, shard.follow = self.calls.run, self.with_id, self.follow
        if self.check_kind is not None:
            shard.check_kind = self.check_kind
        engine, _, place = url.partition(":")
        if shard.made and engine != "memory":
            self.on_store_created(f"made a new store at {Path(place).absolute() if place else url}, for shard {name}")
        return shard

    def _check_first_shards(self, placement: PlacementRecord) -> None:
        """See that a shard states the same first shards as those that are open.

        Raises:
          ShardRefused: it states others. One of the two was made by a process that had a wrong url for the other.
        """
        if self._first_shards and self._first_shards != placement.first_shards:
            remedy = DISAGREE.format(mine=", ".join(placement.first_shards), theirs=", ".join(self._first_shards))
            raise ShardRefused(shard=placement.name, remedy=remedy)

    def _first_shards_for(self, name: str, db: Database) -> Collection[str]:
        """Return with which shards the application began, for a shard that may not know: a new one asks the others."""
        if not _holds_a_shard(db):
            for other in self.urls:
                if other != name and (first_shards := self._first_shards_of(other)):
                    return first_shards
        return self.urls

    def _first_shards_of(self, name: str) -> Collection[str]:
        """Return what another shard stores; empty: it is not there, or stores nothing."""
        opened, url = self._open.get(name), self.urls[name]
        if opened is not None:
            return () if opened.layout.placement is None else opened.layout.placement.first_shards
        if is_missing(url) or url.startswith("memory:"):
            return ()
        db = engines.open(url, clock=self.clock, random=self.random)
        try:
            stored = transact(db, lambda tr: read_or_write_placement(tr, name, ()))
        finally:
            db.close()
        return () if stored is None else stored.first_shards


def _named(moved: TenantMoved) -> TenantMoved:
    """Return the error of a tenant whose shard cannot be asked: it says which one, if that is known."""
    app, user = moved.tenant
    asked = moved.fields.get("shard")
    if moved.first_home is not None:
        reason = f"it lives on {moved.first_home}, which is not configured"
        remedy = f"name the shard {moved.first_home} in the configuration"
        return TenantMoved(reason=reason, app=app, user=user, shard=asked, first_home=moved.first_home, remedy=remedy)
    if moved.owner is not None:
        return TenantMoved(reason=UNKNOWN_OWNER, app=app, user=user, shard=asked, owner=moved.owner, remedy=NAME_ALL)
    return moved


def _asked(shard: Shard, tenant: Tenant) -> Shard:
    """Return the shard, which a tenant's ownership record says is the tenant's."""
    shard.transact(lambda attempt: check_home(attempt.tr, shard.layout.location(tenant, DEFAULT_ZONE)))
    return shard


def is_missing(url: str) -> bool:
    """Say whether opening `url` would make an embedded store. A path that cannot be read is not missing."""
    engine, _, place = url.partition(":")
    if engine != "embedded":
        return False
    try:
        Path(place, "data.mdb").stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _holds_a_shard(db: Database) -> bool:
    return transact(db, lambda tr: bool(tr.get(META_KEY).present()))
