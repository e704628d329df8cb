"""Addresses of the page: what it asks for, checked, and handed to the desk."""

from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import PurePath
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from goal import __version__
from goal.common.errors import GoalError
from goal.pages.html import asset, render
from goal.review.actions import Action
from goal.review.bodies import MOST_IMAGE, MOST_JSON, TooLarge, read_body, read_object
from goal.review.desk import Conflict, Desk, Refused
from goal.storage.locks import Occupied

_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
ASSETS = (
    *("page.css", "galleries.css", "review.css", "icon.svg", "charts.js", "review.js"),
    *("review-ask.js", "review-dialogs.js", "review-grid.js", "review-map.js"),
    *("review-inbox.js", "review-screens.js"),
)
_FOR_EVER = {"cache-control": "private, max-age=31536000, immutable"}
_COUNT = 60

Handler = Callable[[Request], Awaitable[Response]]


def application(desk: Desk) -> Starlette:
    """The page and what it asks for; `guard.Guard` stands before it."""
    view = _Routes(desk)
    get = {
        "/": view.page,
        "/assets/{name}": view.asset,
        "/thumb/{key}": view.thumb,
        "/image/{key}": view.image,
        "/api/version": view.version,
        "/api/state": view.state,
        "/api/images": view.images,
        "/api/members": view.members,
        "/api/compare": view.compare,
        "/api/similar": view.similar,
        "/api/map": view.map,
        "/api/history": view.history,
    }
    routes = [Route(path, explained(call), methods=["GET"]) for path, call in get.items()]
    post = {"/api/act": view.act, "/api/search": view.search}
    routes += [Route(path, explained(call), methods=["POST"]) for path, call in post.items()]
    return Starlette(routes=routes)


def explained(call: Handler) -> Handler:
    """Answer with an error's text and the number that says what kind it is."""

    @wraps(call)
    async def answer(request: Request) -> Response:
        try:
            return await call(request)
        except (Conflict, Occupied) as error:
            return _problem(409, error)
        except Refused as error:
            return _problem(403, error)
        except TooLarge as error:
            return _problem(413, error)
        except GoalError as error:
            return _problem(400, error)
        except OSError as error:
            return _problem(503, error)
        except ClientDisconnect:
            return Response(status_code=400)

    return answer


def _problem(status: int, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    try:
        number = int(text[:20])
    except ValueError:
        raise GoalError(f"{name} is a whole number; given: {text[:20]!r}.") from None
    return min(max(number, -1), 1 << 31)


class _Routes:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def page(self, request: Request) -> Response:
        return Response(render("review.html", version=__version__), media_type="text/html")

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSETS:
            return PlainTextResponse("There is no such file.", 404)
        return Response(str(asset(name)), media_type=_KINDS[PurePath(name).suffix])

    async def thumb(self, request: Request) -> Response:
        return await self._picture(request, False)

    async def image(self, request: Request) -> Response:
        return await self._picture(request, True)

    async def _picture(self, request: Request, large: bool) -> Response:
        key = request.path_params["key"]
        content = await run_in_threadpool(self._desk.picture, key, large)
        if content is None:
            return PlainTextResponse("The image is not where it was.", 404)
        return Response(content, media_type="image/webp", headers=_FOR_EVER)

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": self._desk.version()})

    async def state(self, request: Request) -> Response:
        return await self._told(self._desk.state)

    async def images(self, request: Request) -> Response:
        order = request.query_params.get("order", "typical")
        start, count = _number(request, "start", 0), _number(request, "count", _COUNT)
        return await self._told(
            self._desk.window, _number(request, "class", -1), order, start, count
        )

    async def members(self, request: Request) -> Response:
        return await self._told(self._desk.members, _number(request, "class", -1))

    async def compare(self, request: Request) -> Response:
        first, second = _number(request, "first", -1), _number(request, "second", -1)
        return await self._told(
            self._desk.compared, first, second, _number(request, "count", _COUNT)
        )

    async def similar(self, request: Request) -> Response:
        key = request.query_params.get("image", "")
        return await self._told(self._desk.similar, key, _number(request, "count", _COUNT))

    async def map(self, request: Request) -> Response:
        return await self._told(self._desk.map)

    async def history(self, request: Request) -> Response:
        return await self._told(self._desk.history)

    async def act(self, request: Request) -> Response:
        wanted = Action.parse(await read_object(request, MOST_JSON), "request")
        return await self._told(self._desk.act, wanted)

    async def search(self, request: Request) -> Response:
        content = await read_body(request, MOST_IMAGE)
        return await self._told(self._desk.search, content, _COUNT)

    async def _told(self, call: Callable[..., dict[str, Any]], *given: Any) -> Response:
        return JSONResponse(await run_in_threadpool(call, *given))
