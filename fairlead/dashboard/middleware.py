"""The middleware: applies `access` before every request, and adds headers to every answer."""

from collections.abc import Callable
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.dashboard.access import Access, is_cross_site_navigation, is_same_site

VISITOR = "fairlead.visitor"  # the key of the visitor in a request's scope
BODY_BYTES_MAX = 64_000  # A form has a few short fields.
_SAFE_METHODS = ("GET", "HEAD")
_CONFIRM_PATH = "/do/"  # Confirmation pages: their button does something.
_PUBLIC_PATHS = ("/login", "/static/")  # All that the login page needs.

# Pages load and run only files of static/, are not shown in frames, and send forms only to us.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class AccessMiddleware:
    """Passes a request on to `inner`, or refuses it.

    `cookie_name`: the name of the session cookie. `now_us`: returns the time.
    """

    def __init__(self, inner: ASGIApp, access: Access, *, cookie_name: str, now_us: Callable[[], int]) -> None:
        self._inner = inner
        self._access = access
        self._cookie_name = cookie_name
        self._now_us = now_us

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        assert scope["type"] == "http", "there are no routes of other types"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._inner)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is refused; for any other, note the visitor in its scope."""
        headers = Headers(scope=scope)
        path, reads = scope["path"], scope["method"] in _SAFE_METHODS
        if not self._access.is_allowed_host(headers.get("host", "")):
            return PlainTextResponse(
                "The name in the address is not one of this server. To allow it: --allow-host NAME.\n",
                status_code=421,
            )
        if (
            not headers.get("content-length", "0").isdecimal()
            or int(headers.get("content-length", "0")) > BODY_BYTES_MAX
        ):
            return PlainTextResponse("The request is too long.\n", status_code=413)
        if path.startswith(_CONFIRM_PATH) and is_cross_site_navigation(headers):
            return PlainTextResponse(
                "Another site linked here. Open the dashboard itself, and choose the action there.\n", status_code=403
            )
        visitor = self._access.visitor(
            cookie=HTTPConnection(scope).cookies.get(self._cookie_name, ""),
            authorization=headers.get("authorization", ""),
            now_us=self._now_us(),
        )
        scope[VISITOR] = visitor
        if visitor is None and not path.startswith(_PUBLIC_PATHS):
            if reads and not path.startswith("/live/"):
                target = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
                return RedirectResponse(f"/login?next={quote(target, safe='')}", status_code=303)
            return PlainTextResponse("Log in first, or send the token: Authorization: Bearer TOKEN\n", status_code=401)
        if reads:
            return None
        if not (visitor is not None and visitor.by_header) and not is_same_site(headers):
            return PlainTextResponse(
                "This request did not come from a page of this dashboard, and was refused.\n", status_code=403
            )
        if self._access.read_only and not path.startswith(("/login", "/logout")):
            return PlainTextResponse(
                "This dashboard was started with --read-only: it shows, and changes nothing.\n", status_code=403
            )
        return None
