"""Bodies of requests, read no further than they may be long."""

import json
from typing import Any

from starlette.requests import Request

from goal.common.errors import GoalError

MOST_JSON = 16 << 20
MOST_IMAGE = 64 << 20


class TooLarge(GoalError):
    """A request's body is longer than it may be."""


async def read_body(request: Request, most: int) -> bytes:
    """A request's body of at most `most` bytes; longer ones are not read to their end."""
    announced = request.headers.get("content-length", "0")
    parts, size = [], int(announced) if announced.isdecimal() and len(announced) < 20 else most + 1
    if size <= most:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                break
            parts.append(part)
    if size > most:
        raise TooLarge(f"Too large: at most {most:,} bytes are taken.")
    return b"".join(parts)


async def read_object(request: Request, most: int) -> dict[str, Any]:
    """A request's body as a JSON object."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise GoalError("Expected JSON (content-type: application/json).")
    try:
        content = json.loads(await read_body(request, most))
    except (ValueError, RecursionError) as error:
        raise GoalError(f"This is no JSON: {error}.") from error
    if not isinstance(content, dict):
        raise GoalError("Expected a JSON object.")
    return content
