"""HTML that opens from disk: the one place where templates become pages.

Every value in a template is escaped. Only the style sheets and scripts of this package are taken
as they are.
"""

import re
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

# Control characters, and halves of characters, which no file can hold.
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def render(template: str, **values: object) -> str:
    """Draw a template of this package.

    Args:
        template: File name in ``templates``.
        values: Plain data, all that the template names.

    Returns:
        HTML, in which control characters other than line feed and tab are replaced by U+FFFD.
    """
    return _UNFIT.sub("\ufffd", _environment().get_template(template).render(values))


def asset(name: str) -> Markup:
    """Read a style sheet or script of this package, which needs no escaping."""
    return Markup((files("goal.pages") / "assets" / name).read_text(encoding="utf-8"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("goal.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["asset"] = asset
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment
