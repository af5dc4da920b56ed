"""The guard: what `access` decides, before every request; and the headers of every answer."""

from collections.abc import Callable
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.dashboard.access import Access, is_cross_site_navigation, is_same_site

VISITOR = "fairlead.visitor"  # where a request's scope says who has come in
BODY_BYTES_MAX = 64_000  # Of a form: a few names.
_SAFE_METHODS = ("GET", "HEAD")
_CONFIRM_PATH = "/do/"  # Whose answer is a button that does something.
_PUBLIC_PATHS = ("/login", "/static/")  # To log in one needs no more.

# Nothing runs or loads but what lies in static/; nobody puts a page into a frame; nothing leads elsewhere.
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
    """Lets a request through to `inner`, or answers it.

    `cookie_name`: of the session. `now_us`: returns the time.
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
        assert scope["type"] == "http", "there is no route for anything else"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._inner)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that must not come through; of one that may, note who comes."""
        headers = Headers(scope=scope)
        path, reads = scope["path"], scope["method"] in _SAFE_METHODS
        if not self._access.is_allowed_host(headers.get("host", "")):
            return PlainTextResponse(
                "This server does not go by the name in the address. Start it with --allow-host NAME if it should.\n",
                status_code=421,
            )
        if (
            not headers.get("content-length", "0").isdecimal()
            or int(headers.get("content-length", "0")) > BODY_BYTES_MAX
        ):
            return PlainTextResponse("The request is too long.\n", status_code=413)
        if path.startswith(_CONFIRM_PATH) and is_cross_site_navigation(headers):
            return PlainTextResponse(
                "Another site led here. Open the dashboard itself, and choose what to do there.\n", status_code=403
            )
        visitor = self._access.visitor(
            cookie=HTTPConnection(scope).cookies.get(self._cookie_name, ""),
            authorization=headers.get("authorization", ""),
            now_us=self._now_us(),
        )
        scope[VISITOR] = visitor
        if visitor is None and not path.startswith(_PUBLIC_PATHS):
            if reads and not path.startswith("/live/"):
                wanted = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
                return RedirectResponse(f"/login?next={quote(wanted, safe='')}", status_code=303)
            return PlainTextResponse("Log in first, or send the token: Authorization: Bearer TOKEN\n", status_code=401)
        if reads:
            return None
        if not (visitor is not None and visitor.by_header) and not is_same_site(headers):
            return PlainTextResponse("This did not come from one of our own pages, and was refused.\n", status_code=403)
        if self._access.read_only and not path.startswith(("/login", "/logout")):
            return PlainTextResponse("This dashboard only shows: it was started with --read-only.\n", status_code=403)
        return None
