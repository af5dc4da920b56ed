"""A world without oracles does the same work, and keeps neither an event log nor a replica."""

from __future__ import annotations

from functools import partial

from fairlead.simulation.cluster import Cluster
from fairlead.simulation.oracles.oracle import OracleSuite
from fairlead.simulation.plan import draw_plan
from fairlead.simulation.without_oracles import NoLog, NoOracles
from fairlead.simulation.workload import Shop
from fairlead.simulation.world import START_US, World


def run(world: World, suite: OracleSuite) -> Cluster:
    """Run a shop for two seconds without faults."""
    shop = Shop(world)
    plan = draw_plan(world.random("plan"), faults=(), shards=1)
    cluster = Cluster(world, plan, suite, shop)
    cluster.add_consumers()
    shop.start(cluster)
    world.run_until(START_US + 2_000_000)
    cluster.close()
    return cluster


def test_a_world_without_oracles_takes_the_same_course() -> None:
    watched, unwatched = World(3), World(3, NoLog())
    suite = OracleSuite(watched, ["s0"])
    seen, unseen = run(watched, suite), run(unwatched, NoOracles(unwatched, ["s0"]))
    assert watched.turns == unwatched.turns > 1_000
    assert seen.stores["s0"].contents == unseen.stores["s0"].contents
    assert seen.stores["s0"].commits == unseen.stores["s0"].commits > 50
    assert (bool(watched.log.lines), bool(unwatched.log.lines)) == (True, False)
    assert suite.shards["s0"].zones
    assert not unseen.suite.shards["s0"].zones


def test_a_store_can_begin_with_the_contents_of_another_worlds_store() -> None:
    """A shard keeps the number of parts that it was created with, so the number identifies the shard."""
    first, second = World(1, NoLog()), World(2, NoLog())
    made, other = (draw_plan(world.random("plan"), faults=(), shards=1) for world in (first, second))
    assert made.part_count != other.part_count
    cluster = Cluster(second, other, NoOracles(second, ["s0"]), Shop(second))
    cluster.stores["s0"].preload(run(first, NoOracles(first, ["s0"])).stores["s0"].contents)
    parts: list[int] = []
    cluster.operator.do("look", partial(_note_parts, cluster, parts))
    second.run_until(START_US + 1_000_000)
    assert parts == [made.part_count]


def _note_parts(cluster: Cluster, parts: list[int]) -> None:
    parts.append(cluster.open_shards(cluster.operator.host)["s0"].layout.part_count)
