"""Who may see the page: the browser that was shown the one-time token, and then its cookie.

The cookie's checksum and the port are noted in the cache, never in the model folder, so that an
open page finds a restarted server again, and a model from strangers brings nobody in.
"""

import hashlib
import hmac
import secrets
from pathlib import Path

from goal.common.errors import GoalError
from goal.storage import files
from goal.storage.cache import cache_folder


class Session:
    """The token of one start of the server, and the cookie that a browser gets for it."""

    def __init__(self, model: Path) -> None:
        """Prepare a token; recall the cookie of an earlier start, if there was one."""
        identity = hashlib.sha256(str(model.resolve()).encode("utf-8", "surrogateescape"))
        self._note = cache_folder() / "review" / f"{identity.hexdigest()[:32]}.json"
        self._token: str | None = secrets.token_urlsafe(32)
        self.port, self._cookie = self._recalled()

    @property
    def token(self) -> str:
        """The token to print, before it is used."""
        return self._token or ""

    def exchange(self, token: str) -> str | None:
        """A new cookie for the token; None if it is wrong or was used before."""
        if self._token is None or not _same(token, self._token):
            return None
        self._token = None
        cookie = secrets.token_urlsafe(32)
        self._cookie = _digest(cookie)
        self._remember()
        return cookie

    def admits(self, cookie: str) -> bool:
        """Whether a browser holds the cookie."""
        return self._cookie is not None and _same(_digest(cookie), self._cookie)

    def at(self, port: int) -> None:
        """The server listens at a port."""
        self.port = port
        self._remember()

    def _remember(self) -> None:
        try:
            self._note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            files.write_json(self._note, {"port": self.port, "cookie": self._cookie})
        except (OSError, GoalError):
            return  # an open page will not find a restarted server by itself

    def _recalled(self) -> tuple[int, str | None]:
        try:
            noted = files.read_json(self._note, 4096)
        except GoalError:
            return 0, None
        port, cookie = noted.get("port"), noted.get("cookie")
        usable = port if type(port) is int and 1024 <= port < 65536 else 0
        return usable, cookie if isinstance(cookie, str) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode())
