"""HTML that opens from disk: the one place where templates become pages.

Every value in a template is escaped. Only the style sheets and scripts of this package are taken
as they are.
"""

import re
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

# Control characters, line breaks of other scripts, what turns text around, and halves of
# characters, which no file can hold.
_STEERING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNFIT = re.compile(f"[{_STEERING}]")
_UNFIT_IN_VALUES = re.compile(f"[\t\n{_STEERING}]")


def render(template: str, **values: object) -> str:
    """Draw a template of this package.

    Args:
        template: File name in ``templates``.
        values: Plain data, all that the template names.

    Returns:
        HTML, in which every control character of a value is replaced by U+FFFD, and only the
        template's own line feeds are left.
    """
    return _UNFIT.sub("\ufffd", _environment().get_template(template).render(values))


def asset(name: str) -> Markup:
    """Read a style sheet or script of this package, which needs no escaping."""
    return Markup((files("goal.pages") / "assets" / name).read_text(encoding="utf-8"))


def _printable(value: object) -> object:
    """A value as it may stand in a page; it is escaped afterwards."""
    return value if isinstance(value, Markup) else _UNFIT_IN_VALUES.sub("\ufffd", str(value))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("goal.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["asset"] = asset
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment
