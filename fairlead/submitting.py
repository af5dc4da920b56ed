"""Submit a handler to a running fleet: packed, signed, stored."""

from collections.abc import Mapping
from typing import Any

from fairlead.actors.execution.submitted_handlers import pack_handler, submit
from fairlead.config import Config
from fairlead.handler_types import HandlerFunction
from fairlead.zones.errors import QueueError
from fairlead.zones.shard import Shard


class SubmissionsOff(QueueError):
    """Handlers cannot be submitted: no signing key is set, or the configuration says `submissions = false`.

    Do: make a key, `export FAIRLEAD_SIGNING_KEY=$(openssl rand -hex 32)`, and start the fleet and submit with that
    variable in the environment. Or put the handler into the application's code, and restart the fleet.
    """

    message = "submitted handlers are off"


def submit_signed(
    config: Config, shards: Mapping[str, Shard], kind: str, function: HandlerFunction, options: Mapping[str, Any]
) -> int:
    """Store a handler, signed with the configuration's key, and return its version; see `App.submit`."""
    if not config.signing_key:
        raise SubmissionsOff(reason="no signing_key is set")
    if not config.submissions:
        raise SubmissionsOff(
            reason="the configuration says submissions = false",
            remedy="put the handler into the application's code and restart the fleet, or drop that setting",
        )
    code = pack_handler(kind, function, **options)
    return submit(shards, kind, code, key=config.signing_key.encode())
