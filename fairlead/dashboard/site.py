"""The site: routes, pages rendered, deeds done after they were asked about, errors as pages."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from fairlead.app import App
from fairlead.dashboard.access import SESSION_US, Access, Visitor, is_encrypted
from fairlead.dashboard.actions import action_of
from fairlead.dashboard.middleware import BODY_BYTES_MAX, VISITOR, AccessMiddleware
from fairlead.dashboard.pages import PAGES, Page, Query
from fairlead.dashboard.template_filters import FILTERS, LINKS
from fairlead.error_text import remedy_of, sentence_of
from fairlead.operator import Operator
from fairlead.shards import StoreMissing, UnknownShard
from fairlead.tenant_database import NotADeadLetter
from fairlead.zones.engines import StoreError
from fairlead.zones.errors import ItemGone, QueueError, ShardRefused

LIVE_S = 2.0  # How often a page's changing part is sent again; more seldom where it takes long to make.
LIVE_SHARE = 0.05  # Of a core, for one page that is looked at.
LIVE_MAX = 50  # Pages that are looked at, at the same time.
STREAM_S = 600.0  # Then the browser asks again, and shows its cookie.
LOGIN_S = 0.5  # Who guesses tokens waits.
NOTICES_MAX = 100

_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ItemGone, 404),
    (NotADeadLetter, 404),
    (UnknownShard, 404),
    (StoreMissing, 503),
    (ShardRefused, 503),
    (QueueError, 400),
)


class Site:
    """The pages of an application.

    Args:
      cookie_name: of the session; other servers on this machine share the browser's cookies, and have their own.
    """

    def __init__(self, app: App, access: Access, *, cookie_name: str) -> None:
        self._app = app
        self._access = access
        self._cookie_name = cookie_name
        self._notices: OrderedDict[str, str] = OrderedDict()
        self._open_streams = 0
        self._templates = Environment(
            loader=PackageLoader("fairlead.dashboard"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(LINKS)

    def asgi(self) -> ASGIApp:
        """Return the site, guarded, as a server runs it."""
        pages = [Route(path, self._page) for path in PAGES]
        inner = Starlette(
            routes=[
                *pages,
                Route("/do/{what}", self._ask, methods=["GET"]),
                Route("/do/{what}", self._do, methods=["POST"]),
                Route("/login", self._login_page, methods=["GET"]),
                Route("/login", self._login, methods=["POST"]),
                Route("/logout", self._logout, methods=["POST"]),
                Route("/live{path:path}", self._stream),
                Mount("/static", StaticFiles(packages=[("fairlead.dashboard", "static")])),
            ],
            exception_handlers={404: self._nothing_here},
        )
        inner.router.redirect_slashes = False  # It leads to the name in the request, and there is nothing to lead to.
        return AccessMiddleware(inner, self._access, cookie_name=self._cookie_name, now_us=self._app.clock.now_us)

    # --- Pages ---

    def _page(self, request: Request) -> Response:
        page = PAGES[request.url.path]
        status, template, context = self._shown(page, request.query_params)
        notice = self._notices.pop(request.query_params.get("did", ""), "")
        return self._rendered(request, template, {**context, "nav": page.nav, "notice": notice}, status=status)

    def _shown(self, page: Page, query: Query) -> tuple[int, str, dict[str, Any]]:
        """Return the status, the template and what it is given; of what cannot be shown, why."""
        return self._attempted(lambda: (200, page.template, page.show(self._app, query)))

    def _attempted(self, show: Callable[[], tuple[int, str, dict[str, Any]]]) -> tuple[int, str, dict[str, Any]]:
        try:
            return show()
        except (QueueError, StoreError) as error:
            return _problem(error)
        except tuple(self._app.store_errors()) as error:
            return _problem(error)

    def _rendered(self, request: Request, template: str, context: dict[str, Any], *, status: int = 200) -> Response:
        visitor: Visitor | None = request.scope[VISITOR]
        text = self._templates.get_template(template).render(
            {
                "notice": "", "nav": "", **context,
                "visitor": visitor, "can_log_out": self._access.wants_token, "read_only": self._access.read_only,
                "csrf_token": self._access.csrf_token, "here": _here(request), "live_at": _live_at(request, status),
            }
        )  # fmt: skip
        return HTMLResponse(text, status_code=status)

    def _nothing_here(self, request: Request, _: Exception) -> Response:
        said = {"sentence": "there is no such page", "remedy": "choose one on the left"}
        return self._rendered(request, "problem.html", said, status=404)

    # --- What changes ---

    async def _stream(self, request: Request) -> Response:
        """Send a page's changing part again and again, while somebody looks."""
        page = PAGES.get(request.path_params["path"] or "/")
        if page is None:
            return PlainTextResponse("There is no such page.\n", status_code=404)
        if self._open_streams >= LIVE_MAX:
            return PlainTextResponse("Too many pages are looked at.\n", status_code=503)
        return StreamingResponse(
            self._parts(request, page), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def _parts(self, request: Request, page: Page) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + STREAM_S
        self._open_streams += 1
        try:
            while loop.time() < until_s and not await request.is_disconnected():
                begun_s = loop.time()
                part = await run_in_threadpool(self._part, page, request.query_params)
                yield f"data: {json.dumps(part)}\n\n"
                await asyncio.sleep(max(LIVE_S, (loop.time() - begun_s) / LIVE_SHARE))
        finally:
            self._open_streams -= 1

    def _part(self, page: Page, query: Query) -> str:
        _, name, context = self._shown(page, query)
        template = self._templates.get_template(name)
        given = template.new_context({**context, "read_only": self._access.read_only})
        return "".join(template.blocks["live"](given))

    # --- Actions ---

    def _ask(self, request: Request) -> Response:
        what, query = request.path_params["what"], dict(request.query_params)

        def show() -> tuple[int, str, dict[str, Any]]:
            action = action_of(self._app, what, query)
            said = {key: value for key, value in query.items() if key != "back"}
            return 200, "ask.html", {
                "action": action, "about": action.about(), "what": what, "query": said,
                "back": _local(query.get("back")),
            }  # fmt: skip

        status, template, context = self._attempted(show)
        return self._rendered(request, template, context, status=status)

    async def _do(self, request: Request) -> Response:
        form = await _form(request)
        visitor: Visitor = request.scope[VISITOR]
        if not visitor.by_header and not self._access.is_valid_csrf_token(form.get("csrf_token", "")):
            return PlainTextResponse(
                "This form is not from this server's pages, or from before it was started anew: load the page again.\n",
                status_code=403,
            )
        operator = Operator(_whose(visitor, request), "dashboard")
        back = _local(form.get("back"))

        def do() -> tuple[int, str, dict[str, Any]]:
            said = action_of(self._app, request.path_params["what"], form).do(operator)
            return 303, "", {"said": said}

        status, template, context = await run_in_threadpool(self._attempted, do)
        if status != 303:
            return await run_in_threadpool(self._rendered, request, template, context, status=status)
        return RedirectResponse(self._with_notice(back, context["said"]), status_code=303)

    def _with_notice(self, back: str, said: str) -> str:
        """Return where to go after a deed, so that the page there says once what was done."""
        key = self._app.random.randbytes(8).hex()
        self._notices[key] = said
        while len(self._notices) > NOTICES_MAX:
            self._notices.popitem(last=False)
        return f"{back}{'&' if '?' in back else '?'}did={key}"

    # --- Coming in ---

    def _login_page(self, request: Request) -> Response:
        return self._rendered(request, "login.html", {"next": _local(request.query_params.get("next")), "wrong": False})

    async def _login(self, request: Request) -> Response:
        form = await _form(request)
        wanted = _local(form.get("next"))
        if not self._access.is_token(form.get("token", "").strip()):
            await asyncio.sleep(LOGIN_S)
            return self._rendered(request, "login.html", {"next": wanted, "wrong": True}, status=403)
        answer = RedirectResponse(wanted, status_code=303)
        name = form.get("name", "").strip() or "somebody with the token"
        answer.set_cookie(
            self._cookie_name,
            self._access.session(name, now_us=self._app.clock.now_us()),
            max_age=SESSION_US // 1_000_000,
            httponly=True,
            samesite="strict",
            secure=is_encrypted(request.headers),
        )
        return answer

    def _logout(self, request: Request) -> Response:
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(self._cookie_name, httponly=True, samesite="strict")
        return answer


def _problem(error: Exception) -> tuple[int, str, dict[str, Any]]:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 503)
    return status, "problem.html", {"sentence": sentence_of(error), "remedy": remedy_of(error)}


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; of what is longer than any of ours, none."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            return {}
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


def _local(path: str | None) -> str:
    """Return a path of ours; of anything that leads elsewhere, the first page's."""
    if path is None or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    parts = urlsplit(path)
    return "/" if parts.netloc or parts.scheme else path


def _here(request: Request) -> str:
    """Return the path and query of this page, without what was said once."""
    query = "&".join(each for each in request.url.query.split("&") if each and not each.startswith("did="))
    return f"{request.url.path}?{query}" if query else request.url.path


def _live_at(request: Request, status: int) -> str:
    """Return where the changing part of this page is sent from; nothing if it has none."""
    return f"/live{_here(request)}" if request.url.path in PAGES and status == 200 else ""


def _whose(visitor: Visitor, request: Request) -> str:
    return f"{visitor.name} from {request.client.host}" if request.client is not None else visitor.name
