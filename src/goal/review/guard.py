"""What stands before every request: where it came from, who sent it, and how large it may be.

A browser sends a page's own cookies to this machine whatever site asks, and a foreign name can be
made to lead here (DNS rebinding). So the name that was asked for, the page that asked and the
cookie are checked on every request, and every answer forbids scripts but our own.
"""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from goal.review.session import Session

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_SAFE = ("GET", "HEAD")
_LOCKED_OUT = (
    "This page opens by the address that `goal review` printed, once. If it was used up, stop "
    "`goal review` and start it again."
)


class Guard:
    """Let pass what our own page asks, on this machine, and nothing else."""

    def __init__(self, app: ASGIApp, port: int, session: Session | None = None) -> None:
        """Guard an app.

        Args:
            app: What answers.
            port: Where the server listens.
            session: Who may ask; anybody on this machine if there is none.
        """
        self._app = app
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._session = session
        self._cookie = f"goal-review-{port}"  # cookies do not know ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if headers.getlist("host") != [headers.get("host", "")] or (
            headers.get("host", "") not in self._hosts
        ):
            return PlainTextResponse("This server answers to 127.0.0.1 only.", 421)
        if self._from_elsewhere(scope, headers):
            return PlainTextResponse("Another site asked for this: refused.", 403)
        return self._stranger(scope, headers)

    def _from_elsewhere(self, scope: Scope, headers: Headers) -> bool:
        """Whether a page that is not ours sent the request."""
        own, origin = f"http://{headers['host']}", headers.get("origin")
        if origin is not None and origin != own:
            return True
        if scope["method"] not in _SAFE and self._session is not None and origin is None:
            return True
        arriving = scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
        return headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not arriving

    def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        """How to answer who has not shown the token; None for who has."""
        if self._session is None:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and scope["method"] == "GET" and given:
            if (cookie := self._session.exchange(given)) is not None:
                return self._welcome(cookie)
            if self._known(headers):
                return RedirectResponse("/", 303)
        return None if self._known(headers) else PlainTextResponse(_LOCKED_OUT, 401)

    def _welcome(self, cookie: str) -> Response:
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._cookie, cookie, max_age=30 * 86_400, httponly=True, samesite="strict"
        )
        return answer

    def _known(self, headers: Headers) -> bool:
        try:
            jar = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        held = jar.get(self._cookie)
        return held is not None and self._session is not None and self._session.admits(held.value)
