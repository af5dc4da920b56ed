"""Access control: who may read, who may act, and whether a request comes from our own pages. Plain decisions.

Three attacks are prevented:

- A stranger on the network. Elsewhere than on this machine, the dashboard demands a token.
- Another site in the visitor's browser (CSRF). It can send requests, but cannot read answers. So a post must come from
  our own pages and carry their CSRF token; the session cookie is not sent from other sites; and no other site may link
  to a confirmation page, where a visitor who is pressing a key would confirm.
- Another site whose name resolves to our address (DNS rebinding). It could read answers. So the host in a request must
  be one of our names, or an address.
"""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import NamedTuple

from itsdangerous import BadData, Signer, URLSafeSerializer

from fairlead.zones.errors import QueueError

TOKEN_CHARACTERS_MIN = 16
SESSION_US = 12 * 3600 * 1_000_000  # A working day; then the visitor logs in again.
NAME_CHARACTERS_MAX = 60
LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain"})


class TokenNeeded(QueueError):
    """Everybody who reaches this address could read all payloads and control the fleet.

    Do: put a token of 16 characters or more into a file, and name it with `--token-file`, or into the variable
    FAIRLEAD_DASHBOARD_TOKEN; or listen on 127.0.0.1, and reach it through a tunnel.
    """

    message = "the dashboard listens elsewhere than on this machine only with a token"


class TokenWeak(QueueError):
    """The token can be guessed.

    Do: use 16 characters or more, such as `openssl rand -hex 16` prints.
    """

    message = "the dashboard's token is too short"


class Visitor(NamedTuple):
    """The sender of a request. `by_header`: a program that sends the token in a header, which no other site can do."""

    name: str
    by_header: bool = False


class Access:
    """Decides who may use the dashboard. One for the life of a server.

    Args:
      token: what a visitor must know; None: no token is needed.
      secret: random bytes of this server's life. Sessions and CSRF tokens are signed with it.
      host_names: allowed names in `Host`, lower case, beside this machine's own names and plain addresses.
      anonymous_name: the name of a visitor if no token is needed.
    """

    def __init__(
        self, *, token: str | None, secret: bytes, host_names: frozenset[str], read_only: bool, anonymous_name: str
    ) -> None:
        self.read_only = read_only
        self.wants_token = token is not None
        self._token = None if token is None else token.encode()
        keys = secret + (self._token or b"")
        self._sessions = URLSafeSerializer(keys, salt=b"session", signer_kwargs={"digest_method": sha256})
        self._forms = Signer(keys, salt=b"form", digest_method=sha256)
        self.csrf_token = self._forms.sign(b"form").decode()
        self._host_names = host_names | LOOPBACK_NAMES
        self._anonymous_name = anonymous_name

    def is_allowed_host(self, host: str) -> bool:
        """Return whether a request's `Host` is one of our names, or an address: no name resolves to another there."""
        name = host_name(host)
        return name in self._host_names or _is_address(name)

    def visitor(self, *, cookie: str, authorization: str, now_us: int) -> Visitor | None:
        """Return who sends these headers; None if the visitor must log in first."""
        if self._token is None:
            return Visitor(self._anonymous_name)
        scheme, _, credentials = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.is_token(credentials.strip()):
            return Visitor("somebody with the token", by_header=True)
        return self._visitor_of_session(cookie, now_us)

    def is_token(self, token: str) -> bool:
        """Return whether this is the token. Takes the same time for every answer."""
        return self._token is not None and hmac.compare_digest(token.encode(), self._token)

    def session(self, name: str, *, now_us: int) -> str:
        """Return the session cookie of a visitor who knows the token and has given this name."""
        printable = name[:NAME_CHARACTERS_MAX].encode(errors="replace").decode()
        return str(self._sessions.dumps([now_us + SESSION_US, printable]))

    def _visitor_of_session(self, cookie: str, now_us: int) -> Visitor | None:
        try:
            until_us, name = self._sessions.loads(cookie)
        except BadData:
            return None
        return Visitor(name) if now_us < until_us else None

    def is_valid_csrf_token(self, token: str) -> bool:
        """Return whether a form carries the token of our own pages."""
        return self._forms.validate(token.encode())


def is_same_site(headers: Mapping[str, str]) -> bool:
    """Return whether a post comes from our own pages, as the browser says. Without such headers it does not."""
    fetched_from = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    if fetched_from is not None and fetched_from != "same-origin":
        return False
    if origin is not None:
        return origin.partition("://")[2].lower() == headers.get("host", "").lower()
    return fetched_from is not None


def is_cross_site_navigation(headers: Mapping[str, str]) -> bool:
    """Return whether a page of another origin linked here, as the browser says. Typed addresses do not count."""
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def is_encrypted(headers: Mapping[str, str]) -> bool:
    """Return whether a post left the browser by TLS, which a proxy in front of us ends.

    The origin of the browser's page says so, whatever the proxy's configuration. A client that sends a wrong origin
    harms only its own cookie.
    """
    return headers.get("origin", "").startswith("https://")


def host_name(host: str) -> str:
    """Return the name in a `Host`, lower case, without the port and without the brackets of an address."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a socket that listens on `host`."""
    return host in LOOPBACK_NAMES or (_is_address(host) and ip_address(host).is_loopback)


def checked_token(token: str | None, *, host: str) -> str | None:
    """Return the token if it is sufficient for listening on `host`.

    Raises:
      TokenNeeded: `host` can be reached from other machines, and there is no token.
      TokenWeak: the token is too short.
    """
    if token is None and not is_loopback(host):
        raise TokenNeeded(host=host)
    if token is not None and len(token) < TOKEN_CHARACTERS_MIN:
        raise TokenWeak(characters=len(token), allowed=f"{TOKEN_CHARACTERS_MIN} or more")
    return token


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
