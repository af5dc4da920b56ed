"""Access: who may come in, from where, and whether a request is the visitor's own doing. Plain decisions.

Three things are guarded against. A stranger on the network: elsewhere than on this machine a token is demanded. Another
site in the visitor's browser, which can send requests but not read answers: posts must come from our own pages, and
carry a word that only they know; the cookie is not sent along from other sites; and no other site leads to the page
whose button does something, where a visitor who is pressing a key would press it. Another site that makes its own name
lead here (DNS rebinding), and could read answers: the name in the request must be one of ours.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import NamedTuple

from fairlead.zones.errors import QueueError

TOKEN_CHARACTERS_MIN = 16
SESSION_US = 12 * 3600 * 1_000_000  # A working day: then one logs in again.
NAME_CHARACTERS_MAX = 60
LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain"})


class TokenNeeded(QueueError):
    """Whoever reaches this address could read all payloads and steer the fleet, and nothing would stop them.

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
    """Who has come in. `by_header`: a program with the token in its header, which no other site can make it send."""

    name: str
    by_header: bool = False


class Access:
    """Who may come in. One for the life of a server.

    Args:
      token: what a visitor must know; None: whoever reaches us may come in.
      secret: random bytes of this server's life.
      host_names: by which it may be called, beside this machine's own and plain addresses, lower case.
      everybody: what a visitor without a token is called.
    """

    def __init__(
        self, *, token: str | None, secret: bytes, host_names: frozenset[str], read_only: bool, anonymous_name: str
    ) -> None:
        self.read_only = read_only
        self.wants_token = token is not None
        self.csrf_token = _mac(secret, b"form")
        self._token = None if token is None else token.encode()
        self._secret = secret
        self._host_names = host_names | LOOPBACK_NAMES
        self._anonymous_name = anonymous_name

    def is_allowed_host(self, host: str) -> bool:
        """Say whether a request's `Host` is a name of ours; an address is, since no name leads it elsewhere."""
        name = host_name(host)
        return name in self._host_names or _is_address(name)

    def visitor(self, *, cookie: str, authorization: str, now_us: int) -> Visitor | None:
        """Return who comes with these; None if they must log in first."""
        if self._token is None:
            return Visitor(self._anonymous_name)
        scheme, _, credentials = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.is_token(credentials.strip()):
            return Visitor("somebody with the token", by_header=True)
        return self._of_session(cookie, now_us)

    def is_token(self, token: str) -> bool:
        """Say whether this is the token, in the same time whatever it is."""
        return self._token is not None and hmac.compare_digest(token.encode(), self._token)

    def session(self, name: str, *, now_us: int) -> str:
        """Return the cookie of somebody who knows the token and calls themselves `name`."""
        said = f"{now_us + SESSION_US}.{_packed(name[:NAME_CHARACTERS_MAX])}"
        return f"{said}.{self._signed(said)}"

    def _of_session(self, cookie: str, now_us: int) -> Visitor | None:
        said, _, signature = cookie.rpartition(".")
        if not said or not hmac.compare_digest(signature.encode(), self._signed(said).encode()):
            return None
        until_us, _, name = said.partition(".")
        return Visitor(_unpacked(name)) if now_us < int(until_us) else None

    def _signed(self, said: str) -> str:
        return _mac(self._token or b"", self._secret + said.encode())

    def is_valid_csrf_token(self, word: str) -> bool:
        """Say whether a form carries the word that only our own pages know."""
        return hmac.compare_digest(word.encode(), self.csrf_token.encode())


def is_same_site(headers: Mapping[str, str]) -> bool:
    """Say whether the browser says that a post comes from our own pages; one that says nothing at all does not."""
    fetched_from = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    if fetched_from is not None and fetched_from != "same-origin":
        return False
    if origin is not None:
        return origin.partition("://")[2].lower() == headers.get("host", "").lower()
    return fetched_from is not None


def is_cross_site_navigation(headers: Mapping[str, str]) -> bool:
    """Say whether the browser says that another origin's page led to ours; typed and bookmarked addresses are not."""
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def is_encrypted(headers: Mapping[str, str]) -> bool:
    """Say whether a post left the browser by TLS, which ends at a proxy before us.

    The browser itself says so in the origin of its page, however the proxy is set up. Who lies about it spoils a cookie
    of their own.
    """
    return headers.get("origin", "").startswith("https://")


def host_name(host: str) -> str:
    """Return the name in a `Host`, without the port and an address's brackets, lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach what listens on `host`."""
    return host in LOOPBACK_NAMES or (_is_address(host) and ip_address(host).is_loopback)


def checked_token(token: str | None, *, host: str) -> str | None:
    """Return the token if it will do for listening on `host`.

    Raises:
      TokenNeeded, TokenWeak: see there.
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


def _mac(key: bytes, said: bytes) -> str:
    return hmac.new(key, said, sha256).hexdigest()


def _packed(name: str) -> str:
    return urlsafe_b64encode(name.encode(errors="replace")).decode()


def _unpacked(packed: str) -> str:
    return urlsafe_b64decode(packed).decode(errors="replace")
