"""Settings come from arguments, environment, file and defaults, and each has its source."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fairlead import App, config
from fairlead.actors.settings import ConsumerSettings
from fairlead.config import HIDDEN, Config, settings_of
from fairlead.config_layers import BadConfig
from fairlead.zones.settings import ZoneSettings
from tests.fairlead.shell import run

KEY = "correct horse battery staple"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test starts in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "fairlead.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def refused(arguments: dict[str, Any] | None = None, **environ: str) -> dict[str, object]:
    """Load a configuration that must be refused, and return the error's fields."""
    with pytest.raises(BadConfig) as caught:
        config.load(arguments, environ=environ)
    return caught.value.fields


def test_without_any_source_every_value_is_the_default() -> None:
    loaded = config.load(environ={})
    assert loaded == Config()
    assert set(loaded.sources.values()) == {"default"}


def test_the_file_is_over_the_default_the_environment_over_the_file_and_arguments_over_all() -> None:
    write('log_level = "debug"\n[consumer]\nslots = 2\nworkers = 3\n[zones]\nwake_slack_ms = 40')
    loaded = config.load(
        {"consumer.slots": 4}, environ={"FAIRLEAD_CONSUMER__SLOTS": "3", "FAIRLEAD_LOG_LEVEL": "error"}
    )
    assert (loaded.consumer.slots, loaded.consumer.workers) == (4, 3)
    assert (loaded.zones.wake_slack_ms, loaded.log_level) == (40, "error")
    assert loaded.sources["consumer.slots"] == "argument"
    assert loaded.sources["log_level"] == "FAIRLEAD_LOG_LEVEL"
    assert loaded.sources["consumer.workers"] == "fairlead.toml"
    assert loaded.sources["consumer.lease_ms"] == "default"


def test_every_setting_of_consumers_and_zones_can_be_set_in_every_layer() -> None:
    for table, struct in (("consumer", ConsumerSettings), ("zones", ZoneSettings)):
        for each in fields(struct):
            variable = f"FAIRLEAD_{table.upper()}__{each.name.upper()}"
            text = str(each.default)
            assert config.load({f"{table}.{each.name}": text}, environ={variable: text}) == Config()
            write(f"[{table}]\n{each.name} = {json.dumps(each.default)}")
            assert config.load(environ={}).sources[f"{table}.{each.name}"] == "fairlead.toml"


def test_shards_come_from_one_layer_as_a_whole() -> None:
    """The home of a tenant depends on the whole set: a mixture would lose tenants."""
    write('[shards]\neu = "fdb:/etc/eu.cluster"\nus = "embedded:us"')
    assert set(config.load(environ={}).shards) == {"eu", "us"}
    loaded = config.load(environ={"FAIRLEAD_SHARDS__ASIA": "memory:"})
    assert loaded.shards == {"asia": "memory:"}
    assert loaded.sources["shards.asia"] == "FAIRLEAD_SHARDS__ASIA"
    assert config.load({"shards": "memory:"}, environ={"FAIRLEAD_SHARDS__ASIA": "memory:"}).shards == {
        "main": "memory:"
    }


@pytest.mark.parametrize("line", ['shards = "embedded:data"', '[shards]\nmain = "embedded:./data"'])
def test_a_relative_path_is_taken_from_where_it_is_written(line: str, home: Path) -> None:
    """Workers may run in another directory than the file is in."""
    (home / "etc").mkdir()
    path = write(line, "etc/fairlead.toml")
    assert config.load(environ={}, path=path).shards == {"main": f"embedded:{home}/etc/data"}
    assert config.load(environ={"FAIRLEAD_SHARDS": "embedded:data"}).shards == {"main": f"embedded:{home}/data"}


def test_relative_paths_of_a_program_and_of_the_environment_are_taken_from_the_files_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web server and a worker that were started in two directories have one store, if both read one file."""
    for name in ("etc", "web", "worker"):
        (home / name).mkdir()
    path = write("part_count = 3", "etc/fairlead.toml")
    expected = {"main": f"embedded:{home}/etc/data"}
    for directory in ("web", "worker"):
        monkeypatch.chdir(home / directory)
        monkeypatch.setenv("FAIRLEAD_CONFIG", str(home / "etc/fairlead.toml"))
        assert App("embedded:./data").config.shards == expected
        monkeypatch.setenv("FAIRLEAD_SHARDS", "embedded:data")
        assert App().config.shards == expected
        monkeypatch.delenv("FAIRLEAD_SHARDS")
        monkeypatch.delenv("FAIRLEAD_CONFIG")
        assert App("embedded:./data").config.shards == {"main": f"embedded:{home}/{directory}/data"}
    assert config.load({"shards": "embedded:data"}, path=home / path, environ={}).shards == expected


def test_without_a_file_a_relative_path_is_taken_from_where_the_application_was_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may change its directory before it uses its application."""
    app = App("embedded:./data")
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    assert app.config.shards == {"main": f"embedded:{home}/data"}


def test_the_file_can_be_named_in_the_environment() -> None:
    write("part_count = 3", "other.toml")
    assert config.load(environ={"FAIRLEAD_CONFIG": "other.toml"}).part_count == 3


@pytest.mark.parametrize(
    "key, nearest",
    [("consumer.leese_ms", "consumer.lease_ms"), ("lease_ms", "consumer.lease_ms"), ("shard", "shards"),
     ("zones.max_slep_ms", "zones.max_sleep_ms"), ("xyzzy", None)],
)  # fmt: skip
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key: str, nearest: str | None) -> None:
    fields = refused({key: 1})
    assert (fields["key"], fields["nearest"], fields["source"]) == (key, nearest, "argument")


def test_an_unknown_variable_is_refused_by_its_own_name() -> None:
    fields = refused(FAIRLEAD_CONSUMER__SLOT="3")
    assert (fields["source"], fields["nearest"]) == ("FAIRLEAD_CONSUMER__SLOT", "consumer.slots")


@pytest.mark.parametrize(
    "text, allowed",
    [('part_count = "3"', "a whole number"), ("part_count = true", "a whole number"),
     ("submissions = 1", "true or false"), ("log_level = 3", "text"), ("part_count = 0", "a whole number, 1 to 1,024"),
     ('log_level = "loud"', "debug, info, warning, error"),
     ("[consumer]\nslots = 0", "a whole number, 1 to 1,000"),
     ("[zones]\nmax_sleep_ms = 1", "a whole number, 100 to 86,400,000")],
)  # fmt: skip
def test_a_value_of_the_wrong_type_or_out_of_range_is_refused_with_what_is_allowed(text: str, allowed: str) -> None:
    write(text)
    fields = refused()
    assert (fields["allowed"], fields["source"]) == (allowed, "fairlead.toml")


def test_a_fraction_may_be_written_as_a_whole_number() -> None:
    assert config.load({"consumer.selection_frac": 1}, environ={}).consumer.selection_frac == 1.0


@pytest.mark.parametrize("text, meant", [("true", True), ("ON", True), ("0", False), ("no", False)])
def test_yes_and_no_can_be_written_as_in_a_shell(text: str, meant: bool) -> None:
    assert config.load(environ={"FAIRLEAD_SUBMISSIONS": text}).submissions is meant


@pytest.mark.parametrize(
    "arguments, key",
    [({"consumer.lease_ms": 600_000, "zones.max_item_lease_ms": 10_000}, "consumer.lease_ms"),
     ({"consumer.pointer_lease_ms": 10_000, "zones.max_pointer_lease_ms": 9_000}, "consumer.pointer_lease_ms"),
     ({"consumer.lease_ms": 1_000, "zones.max_item_lease_ms": 1_000}, "zones.max_item_lease_ms"),
     ({"shards": {"a": "embedded:x", "b": "embedded:./x"}}, "shards.b")],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(arguments: dict[str, Any], key: str) -> None:
    assert refused(arguments)["key"] == key


def test_a_contradiction_within_the_consumer_names_both_settings() -> None:
    fields = refused({"consumer.managers": 3, "consumer.workers": 2})
    assert (fields["managers"], fields["workers"]) == (3, 2)


@pytest.mark.parametrize(
    "url, nearest", [("embeded:./data", "embedded:"), ("embedded:", "embedded:"), ("./data", None), (7, None)]
)
def test_a_url_that_names_no_engine_is_refused(url: Any, nearest: str | None) -> None:
    fields = refused({"shards": url})
    assert (fields["key"], fields["nearest"]) == ("shards.main", nearest)


def test_a_file_that_is_missing_or_broken_is_refused_by_name() -> None:
    with pytest.raises(BadConfig, match=r"No such file.*nowhere\.toml|nowhere\.toml.*No such file"):
        config.load(environ={}, path=Path("nowhere.toml"))
    write("slots = = 3")
    assert refused()["source"] == "fairlead.toml"


def test_the_signing_key_is_never_shown() -> None:
    loaded = config.load(environ={"FAIRLEAD_SIGNING_KEY": KEY})
    assert loaded.signing_key == KEY
    assert KEY not in repr(loaded)
    shown = {row.key: row for row in settings_of(loaded)}["signing_key"]
    assert (shown.value, shown.source) == (HIDDEN, "FAIRLEAD_SIGNING_KEY")
    assert "short" not in str(refused(FAIRLEAD_SIGNING_KEY="short").values())
    write("signing_key = 12345678901234567890")
    assert "1234" not in str(refused().values())


def test_what_is_in_force_lists_every_setting_once() -> None:
    keys = [row.key for row in settings_of(config.load({"shards": "memory:"}, environ={}))]
    assert len(keys) == len(set(keys)) == 1 + 6 + len(fields(ConsumerSettings)) + len(fields(ZoneSettings))


def test_a_configuration_can_be_sent_to_a_worker() -> None:
    loaded = config.load({"shards": "memory:", "consumer.slots": 3}, environ={"FAIRLEAD_SIGNING_KEY": KEY})
    assert pickle.loads(pickle.dumps(loaded)) == loaded


@pytest.mark.parametrize("url", ["embedded:~nobody-of-this-name/data", "embedded:\0", "fdb:~nobody-of-this-name"])
def test_a_store_at_a_path_that_cannot_be_is_refused(url: str) -> None:
    """Before, `pathlib` raised a RuntimeError."""
    with pytest.raises(BadConfig):
        config.load({"shards": url}, environ={})


def test_the_command_shows_yes_and_no_as_they_are_written() -> None:
    """Before, it showed 1 and 0."""
    (line,) = [each for each in run("config", "--set", "submissions=false").out.splitlines() if "submissions" in each]
    assert line.split() == ["submissions", "false", "argument"]


# --- External stores ---

DSN = "postgresql://localhost/shop"


def test_an_external_store_notifies_unless_its_table_says_otherwise() -> None:
    write(f'[external.pg]\ndsn = "{DSN}"\nnotify = false\n[external.other]\ndsn = "{DSN}"')
    loaded = config.load(environ={})
    assert (loaded.external, loaded.external_notify) == ({"pg": DSN, "other": DSN}, {"pg": False})
    shown = {row.key: (row.value, row.source) for row in settings_of(loaded)}
    assert shown["external.pg"] == (HIDDEN, "fairlead.toml")
    assert shown["external.pg.notify"] == (False, "fairlead.toml")


def test_the_environment_names_the_database_and_the_file_says_that_it_does_not_notify() -> None:
    """A password stands in the environment."""
    write("[external.pg]\nnotify = false")
    loaded = config.load(environ={"FAIRLEAD_EXTERNAL__PG": DSN})
    assert (loaded.external, loaded.external_notify) == ({"pg": DSN}, {"pg": False})


@pytest.mark.parametrize(
    "arguments", [{"external": {"pg": {"dsn": DSN, "notify": False}}}, {"external.pg": DSN, "external.pg.notify": "no"}]
)
def test_a_program_says_that_a_store_does_not_notify(arguments: dict[str, Any]) -> None:
    loaded = config.load(arguments, environ={"FAIRLEAD_EXTERNAL__PG__NOTIFY": "true"})
    assert loaded.external_notify == {"pg": False}
    assert config.load(config.arguments_of(loaded), environ={}) == loaded


def test_a_variable_says_that_a_store_does_not_notify() -> None:
    loaded = config.load({"external": {"pg": DSN}}, environ={"FAIRLEAD_EXTERNAL__PG__NOTIFY": "false"})
    assert loaded.external_notify == {"pg": False}


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"dsn": DSN, "notify": "perhaps"}, "external.pg.notify"),
        ({"dsn": DSN, "notfy": False}, "external.pg.notfy"),
        ({"notify": False}, "external.pg.notify"),
        ({"dsn": 7}, "external.pg"),
    ],
)
def test_an_external_store_with_a_wrong_option_is_refused(options: dict[str, Any], key: str) -> None:
    assert refused({"external": {"pg": options}})["key"] == key
