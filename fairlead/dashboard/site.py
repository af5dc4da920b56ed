"""The site: routes, pages, updates of open pages, confirmed actions, login, errors as pages."""

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
from fairlead.index_changes import NoBuild
from fairlead.moves import NoMove
from fairlead.operator import Operator
from fairlead.shards import StoreMissing, UnknownShard
from fairlead.zones.engines import StoreError
from fairlead.zones.errors import ItemGone, NotADeadLetter, QueueError, ShardRefused

LIVE_S = 2.0  # Interval of a page's updates; longer if an update takes long to render.
LIVE_SHARE = 0.05  # Of a core, for the updates of one open page.
LIVE_MAX = 50  # Open pages that are updated at the same time.
STREAM_S = 600.0  # Then the browser connects again, and sends its cookie.
LOGIN_S = 0.5  # Delay of a failed login, against guessing of tokens.
NOTICES_MAX = 100

_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ItemGone, 404),
    (NotADeadLetter, 404),
    (NoMove, 404),
    (NoBuild, 404),
    (UnknownShard, 404),
    (StoreMissing, 503),
    (ShardRefused, 503),
    (QueueError, 400),
)


class Site:
    """The pages of an application.

    Args:
      cookie_name: of the session. Browsers send a host's cookies to all its ports: each server has a name of its own.
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
        """Return the site behind its access control, as a server runs it."""
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
        inner.router.redirect_slashes = False  # A redirect would use the host of the request, and no path needs one.
        return AccessMiddleware(inner, self._access, cookie_name=self._cookie_name, now_us=self._app.clock.now_us)

    # --- Pages ---

    def _page(self, request: Request) -> Response:
        page = PAGES[request.url.path]
        status, template, context = self._shown(page, request.query_params)
        notice = self._notices.pop(request.query_params.get("did", ""), "")
        return self._rendered(request, template, {**context, "nav": page.nav, "notice": notice}, status=status)

    def _shown(self, page: Page, query: Query) -> tuple[int, str, dict[str, Any]]:
        """Return the status, the template and its values; if the page cannot be shown, those of the error page."""
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
        problem = {"sentence": "there is no such page", "remedy": "choose a page in the navigation"}
        return self._rendered(request, "problem.html", problem, status=404)

    # --- Updates of open pages ---

    async def _stream(self, request: Request) -> Response:
        """Send the live part of a page again and again, while the page is open."""
        page = PAGES.get(request.path_params["path"] or "/")
        if page is None:
            return PlainTextResponse("There is no such page.\n", status_code=404)
        if self._open_streams >= LIVE_MAX:
            return PlainTextResponse("Too many pages are open.\n", status_code=503)
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
            fields = {key: value for key, value in query.items() if key != "back"}
            return 200, "ask.html", {
                "action": action, "about": action.about(), "what": what, "query": fields,
                "back": _local(query.get("back")),
            }  # fmt: skip

        status, template, context = self._attempted(show)
        return self._rendered(request, template, context, status=status)

    async def _do(self, request: Request) -> Response:
        form = await _form(request)
        visitor: Visitor = request.scope[VISITOR]
        if not visitor.by_header and not self._access.is_valid_csrf_token(form.get("csrf_token", "")):
            return PlainTextResponse(
                "This form is not from a page of this server, or the server was restarted: load the page again.\n",
                status_code=403,
            )
        operator = Operator(_operator_name(visitor, request), "dashboard")
        back = _local(form.get("back"))
        query = {**request.query_params, **form}

        def do() -> tuple[int, str, dict[str, Any]]:
            notice = action_of(self._app, request.path_params["what"], query).do(operator)
            return 303, "", {"notice": notice}

        status, template, context = await run_in_threadpool(self._attempted, do)
        if status != 303:
            return await run_in_threadpool(self._rendered, request, template, context, status=status)
        return RedirectResponse(self._with_notice(back, context["notice"]), status_code=303)

    def _with_notice(self, back: str, notice: str) -> str:
        """Return where to go after an action. The page there shows `notice` once."""
        key = self._app.random.randbytes(8).hex()
        self._notices[key] = notice
        while len(self._notices) > NOTICES_MAX:
            self._notices.popitem(last=False)
        return f"{back}{'&' if '?' in back else '?'}did={key}"

    # --- Login ---

    def _login_page(self, request: Request) -> Response:
        return self._rendered(request, "login.html", {"next": _local(request.query_params.get("next")), "wrong": False})

    async def _login(self, request: Request) -> Response:
        form = await _form(request)
        target = _local(form.get("next"))
        if not self._access.is_token(form.get("token", "").strip()):
            await asyncio.sleep(LOGIN_S)
            return self._rendered(request, "login.html", {"next": target, "wrong": True}, status=403)
        answer = RedirectResponse(target, status_code=303)
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
    """Return the fields of a form; none if it is longer than any of our forms."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            return {}
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


def _local(path: str | None) -> str:
    """Return a path of this site; for anything that leads elsewhere, the path of the first page."""
    if path is None or not path.startswith("/") or path.startswith(("//", "/\\")) or not path.isprintable():
        return "/"
    parts = urlsplit(path)
    return "/" if parts.netloc or parts.scheme else path


def _here(request: Request) -> str:
    """Return the path and query of this page, without the key of a notice."""
    query = "&".join(each for each in request.url.query.split("&") if each and not each.startswith("did="))
    return f"{request.url.path}?{query}" if query else request.url.path


def _live_at(request: Request, status: int) -> str:
    """Return the path of this page's updates; nothing if it has none."""
    return f"/live{_here(request)}" if request.url.path in PAGES and status == 200 else ""


def _operator_name(visitor: Visitor, request: Request) -> str:
    return f"{visitor.name} from {request.client.host}" if request.client is not None else visitor.name
