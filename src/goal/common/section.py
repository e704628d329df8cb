"""The base of every settings section: frozen, strict, and helpful about typos."""

import reprlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from goal.common.errors import GoalError, did_you_mean


class Section(BaseModel):
    """A group of settings. Unknown keys and wrong types are errors; values cannot be changed."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str = "settings") -> Self:
        """Build the section from plain values, or raise one `GoalError` naming every bad key."""
        for key, value in _leaves(values):
            if isinstance(value, str) and "\0" in value:
                raise GoalError(f"Bad {where}:\n  - {shorten(key)}: holds a null character")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            lines = [_explain(cls, problem) for problem in error.errors(include_url=False)]
            raise GoalError(
                f"Bad {where}:\n" + "\n".join(f"  - {line}" for line in lines)
            ) from None


def shorten(text: str, most: int = 300) -> str:
    """Cut a text that is too long for a message."""
    return text if len(text) <= most else f"{text[:most]}..."


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _leaves(value, path)
    else:
        yield path, node


def _explain(section: type[BaseModel], problem: Any) -> str:
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] != "extra_forbidden":
        missing = problem["type"] == "missing"
        given = "" if missing else f" (given: {shorten(reprlib.repr(problem['input']))})"
        return f"{shorten(key)}: {problem['msg']}{given}"
    keys = _keys_at(section, path[:-1])
    return (
        f"{shorten(key)}: no such key.{did_you_mean(path[-1], keys)} Keys here: {', '.join(keys)}."
    )


def _keys_at(section: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields of the section that `path` leads to."""
    for part in path:
        field = section.model_fields.get(part)
        if field is None or not isinstance(field.annotation, type):
            break
        section = field.annotation
    return list(section.model_fields)
