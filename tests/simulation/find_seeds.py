"""Write a seed that finds each mutation into `mutations/seeds.txt`: python -m tests.simulation.find_seeds.

With words, only the mutations whose titles contain one of them are planted. Each mutation is planted and its known seed
is run first. If that seed does not find the mutation any more, the seeds 0 to 199 follow until one does. This can take
minutes for a mutation. The table is written after each mutation. The exit code is 1 if a mutation survives all seeds:
then an oracle or a fault is missing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import click

from tests.simulation.mutations import MUTATIONS
from tests.simulation.mutations.mutation import SEEDS

_TABLE = Path(__file__).with_name("mutations") / "seeds.txt"
_HEAD = "# A seed that finds each mutation. Written by: python -m tests.simulation.find_seeds\n"
_SPAWN = multiprocessing.get_context("spawn")


def known_seeds() -> dict[str, int]:
    """Return the seed that found each mutation when the table was written, by the mutation's title."""
    lines = _TABLE.read_text(encoding="utf-8").splitlines()
    rows = (line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    return {title: int(seed) for seed, title in rows}


def seeds_to_try(known: int | None) -> list[int]:
    """Return the campaign's seeds. The known seed of the mutation is the first."""
    return sorted(SEEDS, key=lambda seed: seed != known)


def main(arguments: Sequence[str] | None = None) -> int:
    """Find a seed for each mutation, write the table after each, and return the exit code."""
    words = _parse(arguments)
    seeds = known_seeds()
    survived = 0
    with ProcessPoolExecutor(os.cpu_count(), _SPAWN) as pool:
        searches = {
            pool.submit(_catch, number, seeds.get(mutation.title)): mutation.title
            for number, mutation in enumerate(MUTATIONS)
            if not words or any(word in mutation.title for word in words)
        }
        for search in as_completed(searches):
            title, catch = searches[search], search.result()
            if catch is None:
                survived += 1
                seeds.pop(title, None)
                click.echo(f"{title}: survives {len(SEEDS)} seeds")
            else:
                seeds[title], oracle = catch
                click.echo(f"{title}: seed {seeds[title]}: {oracle}")
            _write(seeds)
    return 1 if survived else 0


def _parse(arguments: Sequence[str] | None) -> list[str]:
    """Return the words that choose mutations. On request, print the help text and end."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.find_seeds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", help="parts of titles of mutations; default: all mutations")
    words: list[str] = parser.parse_args(arguments).words
    return words


def _write(seeds: dict[str, int]) -> None:
    rows = [f"{seeds[each.title]:<4} {each.title}\n" for each in MUTATIONS if each.title in seeds]
    _TABLE.write_text(_HEAD + "".join(rows), encoding="utf-8")


def _catch(number: int, known: int | None) -> tuple[int, str] | None:
    """Return a seed that finds a mutation and the oracle that failed; None if the mutation survives."""
    catch = MUTATIONS[number].first_catch(seeds_to_try(known))
    return None if catch is None else (catch.seed, catch.violation.oracle)


if __name__ == "__main__":
    sys.exit(main())
