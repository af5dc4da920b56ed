"""Put consumers under an open-loop load of any size, and print the waits of the items.

    python -m bench.load                                      a small load on this machine, one consumer
    python -m bench.load --tenants 150000 --per-s 2500 --consumers 16 --generators 32 --address auto --store fdb:
                                                              a cluster: Ray at `auto`, FoundationDB beneath
    python -m bench.load --skew pareto --items 4 --json       skewed, four items an enqueue; one JSON object
    python -m bench.load --quick                              the same shape within half a minute

Consumers start on this node of the cluster. With `--consumers 0` they run elsewhere, as
`fairlead run --app bench.handlers:app`. Generators spread over all nodes. Every node must be able to import `bench`.
"""

from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from dataclasses import fields
from typing import Any

from bench import ray_cluster
from bench.handlers import app
from bench.harness import store_url
from bench.load.load_spec import SKEWS, Load
from bench.load.trial import fleets, run_load
from bench.machine import describe, scratch
from bench.report import Options, parser, plain, say, show
from bench.stores import commit_ms
from fairlead import Config, ConsumerSettings
from fairlead.zones.errors import QueueError

QUICK = Load(tenants=100, enqueues_per_s=40, work_ms=10, seconds=4, warm_s=1)
_DEFAULT = Load()


def add_options(to: ArgumentParser) -> None:
    """Add the options of a load and of its consumers."""
    add = to.add_argument
    add("--tenants", type=int, help=f"tenants, 1 to 10^7 (default {_DEFAULT.tenants:,})")
    add("--per-s", type=float, dest="enqueues_per_s", metavar="N",
        help=f"enqueues per second, of all tenants (default {_DEFAULT.enqueues_per_s:g})")  # fmt: skip
    add("--items", type=int, help=f"items per enqueue, 1 to 100 (default {_DEFAULT.items})")
    add("--skew", choices=SKEWS, help=f"how enqueues are spread over tenants (default {_DEFAULT.skew})")
    add("--work-ms", type=int, help=f"how long a handler takes, asleep (default {_DEFAULT.work_ms})")
    add("--seconds", type=float, help=f"how long it is measured (default {_DEFAULT.seconds:g})")
    add("--warm-s", type=float, help=f"how long it runs before that (default {_DEFAULT.warm_s:g})")
    add("--seed", type=int, help="of the tenants and times that are drawn (default 0)")
    add("--generators", type=int, default=2, help="Ray actors that enqueue, 16 threads each (default 2)")
    add("--consumers", type=int, default=1, help="fleets on this node; 0: they run elsewhere (default 1)")
    add("--slots", type=int, default=128, help="handlers at once in each of a consumer's two workers (default 128)")
    add("--store", metavar="URL", help="embedded:PATH or fdb:CLUSTER_FILE (default: a new embedded one, deleted later)")
    add("--address", default="local", help="of a Ray cluster to join (default: one is started here)")


def load_of(chosen: Namespace) -> Load:
    """Return the load of the options. Values without an option are the defaults, or those of the quick load."""
    base = plain(QUICK if chosen.quick else _DEFAULT)
    given = {field.name: getattr(chosen, field.name) for field in fields(Load)}
    return Load(**{**base, **{name: value for name, value in given.items() if value is not None}})


def measure(chosen: Namespace, load: Load) -> dict[str, Any]:
    """Return the object that is printed."""
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        settings = ConsumerSettings(slots=chosen.slots, workers=2)
        config = Config(shards={"main": chosen.store or store_url(directory / "store")}, consumer=settings)
        machine = describe(directory)
        bare_commits_ms = [_bare_commit_ms(config)]
        address = stack.enter_context(ray_cluster.cluster(chosen.address))
        say(f"starting {chosen.consumers} consumers")
        consumers = stack.enter_context(fleets(config, chosen.consumers, address))
        say(f"{load.items_per_s:g} items/s for {load.warm_s:g} s unmeasured and {load.seconds:g} s measured")
        loaded = run_load(load, config, consumers, generators=chosen.generators)
        bare_commits_ms.append(_bare_commit_ms(config))
    return {"load": plain(load), **plain(loaded), "machine": {**machine, "bare_commits_ms": bare_commits_ms}}


def _bare_commit_ms(config: Config) -> float:
    """Return the time of a bare commit on the store, before the consumers start and after the load."""
    app.configure(config)
    return round(commit_ms(app.shards["main"].db), 3)


def main() -> None:
    """Measure and print."""
    commands = parser(__doc__)
    add_options(commands)
    chosen = commands.parse_args()
    if chosen.generators < 1 or chosen.consumers < 0:
        commands.error("--generators must be 1 or more, --consumers 0 or more")
    try:
        load = load_of(chosen)
        result = measure(chosen, load)
    except QueueError as error:
        commands.error(str(error))
    show(result, Options(as_json=chosen.json, quick=chosen.quick), "An open-loop load; waits in milliseconds")


if __name__ == "__main__":
    main()
