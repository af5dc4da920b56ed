"""Starting Ray in this process, or joining a cluster."""

import logging
import os
import signal
import socket
import threading
from contextlib import suppress
from typing import Any

import ray
import ray._private.worker as ray_worker
from ray._private.authentication.authentication_token_generator import generate_new_authentication_token
from ray.exceptions import AuthenticationError

from fairlead.actors.runtime.ray_environment import TOKEN_FILE
from fairlead.actors.runtime.ray_host.calls import NAMESPACE
from fairlead.zones.errors import QueueError

log = logging.getLogger("fairlead.ray")

OBJECT_STORE_BYTES = 100 * 2**20  # Calls carry their arguments, so the object store stays nearly empty.
PROBE_S = 3.0

SYSTEM_CONFIG = {
    # Calls to a dead actor fail after 0.2 s instead of 2 s. An idle actor has no measurable cost from this.
    "timeout_ms_task_wait_for_death_info": 100,
    "core_worker_internal_heartbeat_ms": 200,
    # Ray's default of 15 suits background jobs. Beside one busy process on the same core an actor would get a
    # thirtieth of the core, take half a minute to start, and lose its leases.
    "worker_niceness": 0,
}


class ClusterUnreachable(QueueError):
    """There is no Ray cluster at the address, or it refuses this process.

    Do: check the address with `ray status` on the head; where authentication is on, give this machine the head's token
    (`RAY_AUTH_TOKEN`, or the file `~/.ray/auth_token`).
    """

    message = "the Ray cluster cannot be reached"


def connect(address: str, *, show_output: bool = True) -> None:
    """Start a Ray cluster in this process ("local"), or join one ("auto", or HOST:PORT of its head).

    A cluster that is started here accepts only processes with its token, unless RAY_AUTH_MODE is set otherwise. If
    there is no token, one is written to `~/.ray/auth_token`, which only its owner may read.

    Call it on a thread that runs as long as the cluster: Ray ends its processes with the thread that started them.

    Args:
      show_output: whether the output of handlers in their actors appears here too.

    Raises:
      ClusterUnreachable: no cluster listens at the address, or it refuses this token.
    """
    options: dict[str, Any] = {}
    if address == "local":
        options = {
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
            "_system_config": SYSTEM_CONFIG,
        }
    elif ":" in address:
        _probe(address)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if address == "local":
        _make_token()
    try:
        ray.init(
            address=address, namespace=NAMESPACE, log_to_driver=show_output, logging_level=logging.ERROR, **options
        )
    except (ConnectionError, AuthenticationError) as error:
        raise ClusterUnreachable(address=address, reason=_reason_of(error)) from None
    _log_messages_of_ray()
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():  # Ray has replaced them by its own, which end the process at once.
            signal.signal(number, handler)


def _make_token() -> None:
    """Write Ray's token, unless this user has one. Ray itself would write it readable for all users.

    A umask around Ray's start would help too, but every handler would inherit it. The file appears complete, because
    another fleet may start at the same moment.
    """
    if TOKEN_FILE.exists() or {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        return
    TOKEN_FILE.parent.mkdir(mode=0o700, exist_ok=True)
    draft = TOKEN_FILE.with_name(f"{TOKEN_FILE.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(generate_new_authentication_token())
    with suppress(FileExistsError):
        TOKEN_FILE.hardlink_to(draft)
    draft.unlink()


def _reason_of(error: Exception) -> str:
    """Return why Ray refused this process, without the traceback in Ray's text."""
    return str(error.__cause__ or error).partition("Traceback")[0].strip()[:500] or type(error).__name__


def _probe(address: str) -> None:
    """Raise at once if no process listens: Ray itself retries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PROBE_S).close()
    except (OSError, ValueError) as error:
        raise ClusterUnreachable(address=address, reason=str(error)) from None


def _log_messages_of_ray() -> None:
    """Send Ray's messages about dead processes to the log.

    Ray prints them to the driver's standard output, whatever `log_to_driver` is, between the output of the program.
    They explain the death of a worker at length, which is ordinary here. There is no public switch.
    """
    printing = ray_worker.print_to_stdstream

    def note(data: dict[str, Any], *args: Any, **options: Any) -> None:
        if data.get("pid") == "raylet":
            log.info("ray: %s", " ".join(data["lines"]))
        else:
            printing(data, *args, **options)

    ray_worker.print_to_stdstream = note


def disconnect() -> None:
    """Leave the cluster. A cluster that `connect` started ends."""
    ray.shutdown()
