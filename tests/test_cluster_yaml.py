"""`cluster.yaml` is what `ray up` takes, and starts a consumer on every node.

Ray's own check comes first, called as `ray up` calls it. It lets misspelt keys of provider and machines pass, and
knows nothing of consumers; the checks after it do. Each of them is shown files that it must refuse.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import ray.autoscaler
import yaml
from jsonschema import ValidationError  # type: ignore[import-untyped]
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import start as ray_start

from fairlead.cli.fleet import run as fairlead_run

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text(encoding="utf-8"))
RESOURCES = {"CPU", "GPU", "memory", "object_store_memory"}  # Any other name is one that nobody offers or asks for.
INSTANCE_KEYS = {"InstanceType", "ImageId", "BlockDeviceMappings"}  # Of EC2's RunInstances, what the file uses.
MADE_ON_THE_NODE = {"venv", "ray_bootstrap_config.yaml"}
COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)

Config = dict[str, Any]


def refused_by_ray(config: Config) -> Iterator[str]:
    """Yield why `ray up` would stop before it asks the cloud for a machine."""
    try:
        validate_config(prepare_config(config))
    except (ValidationError, ValueError) as error:
        yield str(error)


def unknown_keys(config: Config) -> Iterator[str]:
    """Yield each key that Ray would pass over in silence."""
    yield from _strangers("provider", config["provider"], SCHEMA["properties"]["provider"]["properties"])
    for name, node in config["available_node_types"].items():
        yield from _strangers(f"{name}.node_config", node["node_config"], INSTANCE_KEYS)
        yield from _strangers(f"{name}.resources", node["resources"], RESOURCES)


def nodes_without_consumer(config: Config) -> Iterator[str]:
    """Yield what is wrong with the way in which the nodes of a type join Ray, with its token, and start a consumer."""
    for name in config["available_node_types"]:
        is_head = name == config["head_node_type"]
        commands = [shlex.split(each) for each in config[f"{'head' if is_head else 'worker'}_start_ray_commands"]]
        joining = [(place, each) for place, each in enumerate(commands) if _after(each, "ray", "start") is not None]
        running = [(place, each) for place, each in enumerate(commands) if _after(each, "fairlead", "run") is not None]
        if len(joining) != 1 or len(running) != 1 or joining[0] > running[0]:
            yield f"{name}: one ray start and then one consumer, not {len(joining)} and {len(running)}"
            continue
        yield from _faults(name, joining[0][1], running[0][1], is_head=is_head)


def unmounted_paths(config: Config) -> Iterator[str]:
    """Yield each file in the home directory that a command uses and nothing puts there."""
    home = f"/home/{config['auth']['ssh_user']}/"
    mounted = {path.removeprefix(home).split("/")[0] for path in config["file_mounts"]}
    for command in _commands(config):
        for name in re.findall(r"(?:~|\$HOME)/([\w.-]+)", command):
            if name not in mounted | MADE_ON_THE_NODE:
                yield f"{name} is not in file_mounts: {command}"


def not_shell(config: Config) -> Iterator[str]:
    """Yield each command that bash cannot parse."""
    for command in _commands(config):
        parsed = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
        if parsed.returncode:
            yield parsed.stderr


def problems(config: Config) -> list[str]:
    """Return everything that is wrong with a cluster file."""
    checks = (unknown_keys, nodes_without_consumer, unmounted_paths, not_shell)
    return list(refused_by_ray(config)) or [problem for check in checks for problem in check(config)]


def test_ray_up_takes_the_file_and_every_node_runs_a_consumer() -> None:
    assert problems(cluster()) == []


def test_launcher_and_nodes_get_the_versions_that_are_tested() -> None:
    text = (ROOT / "cluster.yaml").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([\w-]+)==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    assert re.findall(r"ray\[default\]==([\d.]+)", text) == [pins["ray"]]
    series = {".".join(release.split(".")[:2]) for release in re.findall(r"foundationdb-clients_([\d.]+)-", text)}
    assert series == {".".join(pins["foundationdb"].split(".")[:2])}


def misspell_a_key(config: Config) -> None:
    config["setup_comands"] = config.pop("setup_commands")


def misspell_a_key_of_a_node_type(config: Config) -> None:
    config["available_node_types"]["worker"]["min_worker"] = 2


def misspell_a_key_of_the_provider(config: Config) -> None:
    config["provider"]["regoin"] = config["provider"].pop("region")


def misspell_a_key_of_the_machine(config: Config) -> None:
    config["available_node_types"]["head"]["node_config"]["InstanceTyp"] = "m5.large"


def misspell_a_resource(config: Config) -> None:
    config["available_node_types"]["worker"]["resources"]["cpu"] = 8


def drop_the_head(config: Config) -> None:
    del config["available_node_types"]["head"]


def ask_for_more_workers_than_allowed(config: Config) -> None:
    config["max_workers"] = 1


def start_no_consumer_on_workers(config: Config) -> None:
    config["worker_start_ray_commands"].pop()


def start_the_consumer_before_ray(config: Config) -> None:
    config["head_start_ray_commands"].reverse()


def leave_the_token_out(config: Config) -> None:
    _rewrite(config, "worker_start_ray_commands", "RAY_AUTH_MODE=token ", "")


def leave_the_signing_key_out(config: Config) -> None:
    _rewrite(config, "worker_start_ray_commands", '--property=EnvironmentFile="$HOME/fairlead.env"', "")


def leave_the_niceness_out(config: Config) -> None:
    _rewrite(config, "head_start_ray_commands", "RAY_worker_niceness=0 ", "")


def misspell_an_option_of_the_consumer(config: Config) -> None:
    _rewrite(config, "head_start_ray_commands", "--address auto", "--adress auto")


def let_the_consumer_start_its_own_ray(config: Config) -> None:
    _rewrite(config, "worker_start_ray_commands", "--address auto", "")


def point_the_workers_elsewhere(config: Config) -> None:
    _rewrite(config, "worker_start_ray_commands", "$RAY_HEAD_IP:6379", "$RAY_HEAD_IP:6380")


def misspell_an_option_of_ray(config: Config) -> None:
    _rewrite(config, "head_start_ray_commands", "--autoscaling-config", "--autoscaler-config")


def forget_a_mount(config: Config) -> None:
    del config["file_mounts"]["/home/ubuntu/app"]


def leave_a_quote_open(config: Config) -> None:
    config["setup_commands"][0] += " '"


@pytest.mark.parametrize(
    "break_it, wrong",
    [
        (misspell_a_key, "'setup_comands' was unexpected"),
        (misspell_a_key_of_a_node_type, "'min_worker' was unexpected"),
        (misspell_a_key_of_the_provider, "provider: regoin"),
        (misspell_a_key_of_the_machine, "head.node_config: InstanceTyp"),
        (misspell_a_resource, "worker.resources: cpu"),
        (drop_the_head, "`head_node_type` must be one of"),
        (ask_for_more_workers_than_allowed, "`max_workers` is smaller"),
        (start_no_consumer_on_workers, "worker: one ray start and then one consumer, not 1 and 0"),
        (start_the_consumer_before_ray, "head: one ray start and then one consumer"),
        (leave_the_token_out, "worker: ray start without the token"),
        (leave_the_signing_key_out, "worker: the consumer without the signing key"),
        (leave_the_niceness_out, "head: ray start leaves its workers to the leavings"),
        (misspell_an_option_of_the_consumer, "--adress"),
        (let_the_consumer_start_its_own_ray, "worker: the consumer joins another Ray"),
        (point_the_workers_elsewhere, "worker: ray start joins another Ray"),
        (misspell_an_option_of_ray, "--autoscaler-config"),
        (forget_a_mount, "app is not in file_mounts"),
        (leave_a_quote_open, "unexpected EOF"),
    ],
)
def test_broken_file_is_refused(break_it: Callable[[Config], None], wrong: str) -> None:
    config = cluster()
    break_it(config)
    assert wrong in "\n".join(problems(config))


def cluster() -> Config:
    """Return the file as `ray up` reads it; what its nodes share, each of them gets for its own."""
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    alone: Config = json.loads(json.dumps(config))
    return alone


def _strangers(place: str, found: Config, known: Any) -> Iterator[str]:
    yield from (f"{place}: {key} is no name that Ray knows" for key in found.keys() - set(known))


def _faults(name: str, joining: list[str], running: list[str], *, is_head: bool) -> Iterator[str]:
    for words, what in ((joining, "ray start"), (running, "the consumer")):
        if not any(word.endswith("RAY_AUTH_MODE=token") for word in words):
            yield f"{name}: {what} without the token"
    if "--property=EnvironmentFile=$HOME/fairlead.env" not in running:
        yield f"{name}: the consumer without the signing key"
    if "RAY_worker_niceness=0" not in joining:
        yield f"{name}: ray start leaves its workers to the leavings of the processor"
    try:
        joins = _parsed(ray_start, _after(joining, "ray", "start"))
        runs = _parsed(fairlead_run, _after(running, "fairlead", "run"))
    except click.UsageError as error:
        yield f"{name}: {error.format_message()}"
        return
    place = (True, 6379, None) if is_head else (False, None, "$RAY_HEAD_IP:6379")
    if (joins["head"], joins["port"], joins["address"]) != place:
        yield f"{name}: ray start joins another Ray than the head's"
    if (runs["runtime"], runs["address"]) != ("ray", "auto"):
        yield f"{name}: the consumer joins another Ray than the node's"


def _after(words: list[str], program: str, verb: str) -> list[str] | None:
    """Return the arguments of `program verb` in a command, or None if it is not run there."""
    for place, pair in enumerate(pairwise(words)):
        if (Path(pair[0]).name, pair[1]) == (program, verb):
            return words[place + 2 :]
    return None


def _parsed(command: click.Command, arguments: list[str] | None) -> Config:
    """Return the options that the program itself reads from `arguments`."""
    assert arguments is not None
    return command.make_context(command.name, arguments).params


def _commands(config: Config) -> list[str]:
    return [command for kind in COMMANDS for command in config.get(kind, [])]


def _rewrite(config: Config, kind: str, old: str, new: str) -> None:
    assert any(old in command for command in config[kind])
    config[kind] = [command.replace(old, new) for command in config[kind]]
