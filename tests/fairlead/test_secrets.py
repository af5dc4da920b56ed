"""Secrets are passed in every possible way, and searched for in all output."""

from __future__ import annotations

import io
import logging
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead import App, BadConfig, Config, Job, fleet
from fairlead.cli import main
from fairlead.config import load
from fairlead.fleet import AppOpening
from tests.fairlead.dashboard.serving import served
from tests.fairlead.shell import Answer, run
from tests.fairlead.test_fleet_with_damaged_records import eventually

CANARY = "canary-that-must-not-sing"

MODULE = """
import fairlead

app = fairlead.App()

@app.handler("mail")
def mail(job):
    raise ValueError("no")

def report(job):
    pass
"""

# Every command, in success and in failure. `simulate` and `demo` have stores and configurations of their own.
COMMANDS = (
    "config", "config --set consumer.slots=x", "config --set signing_keys=x", "config --app fl_secret:app",
    "enqueue mail --tenant shop alice --id order-7", "enqueue mail [ --tenant shop alice", "peek --tenant shop alice",
    "find order=7", "postgres check --dsn postgresql://web:canary-that-must-not-sing@127.0.0.1:1/shop",
    "records", "records scrub nothing --app fl_secret:app",
    "why order-7 --tenant shop alice", "why nobody",
    "result order-7 --tenant shop alice", "status", "status --store embedded:nowhere", "dead-letters list",
    "dead-letters retry nobody --tenant shop alice", "dead-letters discard nobody --tenant shop alice",
    "pause --tenant shop alice", "resume --tenant shop alice", "limit --kind mail --max-running 3",
    "set-weight 2 --tenant shop alice",
    "submit fl_secret:report --kind report --app fl_secret:app", "submit fl_secret:nothing --kind report",
    "check", "check --repair", "check --quarantine", "quarantine", "quarantine --discard 00", "backup secret.backup",
    "restore secret.backup", "restore nothing.backup", "cancel order-7 --tenant shop alice",
    "steps order-7 --tenant shop alice", "locks", "signal order-7 go --tenant shop alice",
    "replay mail --app fl_secret:app", "replay mail", "run fl_secret:nothing",
    "run fl_secret:app --runtime threads --set consumer.lease_ms=1", "simulate fl_secret:app --seeds 1",
    "snapshots list --tenant shop alice", "snapshots take --tenant shop alice", "move shop/alice --to nowhere", "moves",
    "rebalance --to nowhere", "demo --nothing", "log", "top", "dashboard --host 192.0.2.1", "dashboard --port x",
)  # fmt: skip


@pytest.fixture
def place(empty_directory: Path) -> Path:
    (empty_directory / "fl_secret.py").write_text(MODULE)
    return empty_directory


def configured(place: Path, way: str, monkeypatch: pytest.MonkeyPatch, value: str = CANARY) -> list[str]:
    """Set the signing key in one of the possible ways; return the arguments that it needs."""
    lines = ['shards = "embedded:./data"', f'signing_key = "{value}"' if way == "file" else ""]
    (place / "fairlead.toml").write_text("\n".join(lines))
    if way == "environment":
        monkeypatch.setenv("FAIRLEAD_SIGNING_KEY", value)
    return ["--set", f"signing_key={value}"] if way == "argument" else []


def assert_silent(answer: Answer, secret: str = CANARY) -> None:
    assert secret not in answer.out + answer.err


def test_every_command_is_checked() -> None:
    assert {line.split()[0] for line in COMMANDS} == set(main.commands)


@pytest.mark.parametrize("way", ["file", "environment"])
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["people", "programs"])
def test_no_command_shows_a_secret(
    place: Path, way: str, form: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(place, way, monkeypatch)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer {CANARY}")
    monkeypatch.setenv("RAY_AUTH_TOKEN", CANARY)
    monkeypatch.setenv("FAIRLEAD_DASHBOARD_TOKEN", CANARY)
    for line in COMMANDS:
        assert_silent(run(*line.split(), *form))


@pytest.mark.parametrize("way", ["file", "environment", "argument"])
def test_a_signing_key_that_is_refused_is_not_repeated(place: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = CANARY[:15]
    answer = run("config", *configured(place, way, monkeypatch, short))
    assert answer.code == 2
    assert_silent(answer, short)


def test_a_signing_key_that_was_typed_is_not_repeated(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = configured(place, "argument", monkeypatch)
    for line in ("config", "config --json", "config --set x=1", "run fl_secret:nothing"):
        assert_silent(run(*line.split(), *typed))


REFUSED = ['signing_key = ["{}"]', 'signing_key = "{}', '[signing_key]\na = "{}"', 'signing_kye = "{}"']


@pytest.mark.parametrize("line", REFUSED)
def test_a_file_that_is_refused_is_not_quoted(place: Path, line: str) -> None:
    (place / "fairlead.toml").write_text(line.format(CANARY))
    answer = run("config")
    assert answer.code == 2
    assert_silent(answer)


def test_what_holds_a_configuration_does_not_print_the_signing_key() -> None:
    config = Config(shards={"main": "memory:"}, signing_key=CANARY)
    app = App(config=config)
    opening = AppOpening("shop:app", "/", config)
    for each in (config, opening, app, app.arguments.get("nothing"), fleet.open_for_actors(app).submitted):
        assert CANARY not in f"{each!r} {each}"
    assert pickle.loads(pickle.dumps(opening)).config.signing_key == CANARY, "a worker must get the key"


@pytest.mark.parametrize("way", ["file", "environment"])
def test_a_dashboard_shows_its_token_nowhere(place: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in any response, with or without a login, and not in its log."""
    configured(place, "file", monkeypatch)
    (place / "token").write_text(CANARY)
    typed = ["--token-file", str(place / "token")] if way == "file" else []
    env = {"FAIRLEAD_DASHBOARD_TOKEN": CANARY} if way == "environment" else {}
    with (place / "errors").open("w+") as errors:
        with served(*typed, "--store", "embedded:./data", env=env, errors=errors) as server:
            answers = [server.post("/login", {"token": token, "next": "/"}) for token in (CANARY, "wrong")]
            session = answers[0].headers["set-cookie"].partition(";")[0]
            answers += [server.ask("/log"), server.ask("/log", Cookie=session), server.ask("/no", Cookie=session)]
            answers += [server.ask("/do/pause?kind=mail", Authorization=f"Bearer {CANARY}")]
            answers += [server.ask("/item?id=x", Authorization=f"Bearer {CANARY}"), server.ask("/", Host="elsewhere")]
        assert [answer.status for answer in answers] == [303, 403, 303, 200, 404, 200, 400, 421]
        assert all(CANARY not in f"{answer.headers} {answer.text}" for answer in answers)
        errors.seek(0)
        assert CANARY not in errors.read()


def test_an_error_in_loading_a_configuration_does_not_hold_the_key() -> None:
    with pytest.raises(BadConfig) as refused:
        load({"signing_key": CANARY, "consumer.slots": 0, "shards": "memory:"}, environ={})
    assert CANARY not in "".join(traceback.format_exception(refused.value))


@pytest.fixture
def heard() -> Iterator[io.StringIO]:
    """All log lines, at the most verbose level."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.setLevel(level)
    root.removeHandler(handler)


def test_a_failing_fleet_logs_no_secret(
    place: Path, heard: io.StringIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers fail, submitted ones are refused and loaded, and a record is damaged."""
    monkeypatch.setenv("FAIRLEAD_DASHBOARD_TOKEN", CANARY)
    app = App(config=Config(shards={"main": f"embedded:{place / 'data'}"}, signing_key=CANARY, log_level="debug"))

    @app.handler("mail", permanent=(ValueError,))
    def mail(job: Job) -> None:
        raise ValueError(job.id)

    stranger = App(config=Config(shards=app.config.shards, signing_key="another key of some length"))
    stranger.submit(lambda job: None, kind="stranger")
    app.submit(lambda job: 1 / 0, kind="mine")
    alice = app.tenant("shop", "alice")
    for kind in ("mail", "mine", "stranger"):
        alice.enqueue(kind)
    running = fleet.start(app, "shop:app", runtime="threads")
    eventually(lambda: "ZeroDivisionError" in heard.getvalue() and "not signed with" in heard.getvalue())
    running.stop(drain=1)
    said = capsys.readouterr()
    assert CANARY not in heard.getvalue() + said.out + said.err
    stranger.close()
    app.close()
