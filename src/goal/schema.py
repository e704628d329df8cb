"""The base of every settings section: frozen, strict, and helpful about typos."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from goal.errors import GoalError, did_you_mean


class Section(BaseModel):
    """A group of settings. Unknown keys and wrong types are errors; values cannot be changed."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", validate_default=True, allow_inf_nan=False
    )

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str = "settings") -> Self:
        """Build the section from plain values, or raise one `GoalError` naming every bad key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            lines = [_explain(cls, problem) for problem in error.errors(include_url=False)]
            raise GoalError(
                f"Bad {where}:\n" + "\n".join(f"  - {line}" for line in lines)
            ) from None


def _explain(section: type[BaseModel], problem: Any) -> str:
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] != "extra_forbidden":
        given = "" if problem["type"] == "missing" else f" (given: {problem['input']!r})"
        return f"{key}: {problem['msg']}{given}"
    keys = _keys_at(section, path[:-1])
    return f"{key}: no such key.{did_you_mean(path[-1], keys)} Keys here: {', '.join(keys)}."


def _keys_at(section: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields of the section that `path` leads to."""
    for part in path:
        field = section.model_fields.get(part)
        if field is None or not isinstance(field.annotation, type):
            break
        section = field.annotation
    return list(section.model_fields)
