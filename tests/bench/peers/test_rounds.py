"""The order of the rounds of a run, the due times of jobs, and the latency from these times."""

from pathlib import Path

import pytest

from bench.peers import job
from bench.peers.__main__ import DOCS, options
from bench.peers.job import Start, new_job
from bench.peers.measures import FIGURES, MEASURES
from bench.peers.measures.latency import latencies_ms
from bench.peers.producing import due_times
from bench.peers.round_context import RoundContext
from bench.peers.run import repetition_plan
from bench.peers.systems import ONLY_IN, SYSTEMS

SECOND_NS = 10**9


def test_systems_alternate_within_each_repetition() -> None:
    taken = list(repetition_plan(["dbos", "skip-locked"], ["drain"], 3))
    assert taken == [[("dbos", "drain"), ("skip-locked", "drain")]] * 3


def test_a_variant_takes_part_only_where_it_differs() -> None:
    quick = list(repetition_plan(list(SYSTEMS), list(MEASURES), 1))
    measured = {measure for each in quick for system, measure in each if system == "dbos-partitions"}
    assert measured == set(ONLY_IN["dbos-partitions"]) == {"flood"}
    assert {system for each in quick for system, _ in each} == set(SYSTEMS)


def test_only_the_variants_with_steps_take_part_in_the_measure_of_steps() -> None:
    (quick,) = repetition_plan(list(SYSTEMS), ["steps"], 1)
    assert quick == [("fairlead-steps", "steps"), ("dbos-steps", "steps")]


def test_only_a_full_run_of_everything_replaces_the_page_unless_it_has_an_output() -> None:
    assert options([]).output == DOCS
    assert options(["--quick"]).output is None
    assert options(["--measures", "drain"]).output is None
    assert options(["--quick", "--output", "there"]).output == Path("there")


def test_an_unknown_system_is_refused_with_a_list_of_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(["--systems", "celery"])
    assert "celery-always" in capsys.readouterr().err


def test_jobs_of_several_senders_are_due_evenly_spaced_at_the_rate() -> None:
    due = sorted(time for number in range(4) for time in due_times(0, 1_000, 0.5, number, 4))
    assert due == [job * SECOND_NS // 1_000 for job in range(500)]


def test_latency_counts_from_the_due_time_of_a_job_and_not_from_a_late_send() -> None:
    assert latencies_ms([Start(tag=0, due_ns=SECOND_NS, started_ns=SECOND_NS + 2_500_000, pid=1)]) == [2.5]


def test_a_job_has_about_two_hundred_bytes_and_records_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RoundContext(system="here", directory=tmp_path)
    context.notes.mkdir()
    monkeypatch.setattr(job, "CONTEXT", context)
    monkeypatch.setattr(job, "_files", {})
    sent = new_job(tag=3, due_ns=7)
    assert 180 <= len(str(sent)) <= 220
    job.run(sent)
    job.run(new_job(tag=4))
    assert job.count() == 2
    (start,) = job.starts(3)
    assert (start.tag, start.due_ns) == (3, 7)
    assert start.started_ns > 7


def test_every_system_cites_the_documentation_of_its_settings() -> None:
    folder = Path(job.__file__).parent / "systems"
    modules = {entry.partition(":")[0] for entry in SYSTEMS.values()} - {"fairlead_embedded", "fairlead_postgres"}
    silent = [name for name in modules if "https://" not in (folder / f"{name}.py").read_text().split('"""')[1]]
    assert silent == []


def test_every_figure_belongs_to_a_table() -> None:
    from bench.peers.page import TABLES

    assert [key for keys in TABLES.values() for key in keys] == list(FIGURES)
