"""The server: the site on a socket, until it is stopped."""

import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from fairlead.app import App
from fairlead.dashboard.access import Access, checked_token
from fairlead.dashboard.site import Site
from fairlead.zones.errors import QueueError

SECRET_BYTES = 32
STOP_S = 1  # Open pages are disconnected after this time.
BACKLOG = 128


class AddressInUse(QueueError):
    """The address cannot be used: another program listens there, or the address is not this machine's.

    Do: choose another port, `--port 8322`, or an address of this machine, `--host 127.0.0.1`.
    """

    message = "the dashboard cannot listen there"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
      AddressInUse: the address cannot be used.
    """
    # The protocol is named, so that asyncio turns Nagle's algorithm off: it delays each answer by 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise AddressInUse(host=host, port=port, reason=error.strerror or str(error)) from None
    return listening


def serve(
    app: App,
    *,
    host: str,
    port: int,
    token: str | None,
    host_names: frozenset[str] = frozenset(),
    read_only: bool = False,
    started: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve an application's dashboard until SIGTERM or Ctrl-C.

    Args:
      token: what a visitor must know. None: no token is needed; refused unless only this machine can reach `host`.
      host_names: further allowed names in `Host`, beside this machine's own names and plain addresses.
      started: called with the address when the server has started.

    Raises:
      TokenNeeded, TokenWeak, AddressInUse: see these classes.
    """
    checked_token(token, host=host)
    with listen(host, port) as listening:
        bound = listening.getsockname()[1]
        access = Access(
            token=token,
            secret=app.random.randbytes(SECRET_BYTES),
            host_names=frozenset(name.lower() for name in host_names) | {socket.gethostname().lower(), host.lower()},
            read_only=read_only,
            anonymous_name=app.operator.name,
        )
        site = Site(app, access, cookie_name=f"fairlead_{bound}")
        config = uvicorn.Config(
            site.asgi(), log_level="warning", access_log=False, server_header=False, proxy_headers=False,
            timeout_graceful_shutdown=STOP_S, lifespan="off",
        )  # fmt: skip
        address = f"http://{f'[{host}]' if ':' in host else host}:{bound}/"
        with suppress(KeyboardInterrupt):  # Raised again once all is closed, for the caller.
            _Server(config, lambda: started(address)).run(sockets=[listening])


class _Server(uvicorn.Server):
    """A server that reports its start; from then on Ctrl-C ends it in order."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()
