"""YAML, read the one safe way."""

import re
from collections import Counter
from typing import Any

import yaml

from goal.common.errors import GoalError
from goal.common.section import shorten

MOST_CHARACTERS = 1 << 20


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases and repeated keys; 1e-4 is a number, as everyone expects."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases: a few lines of them can stand for more than fits into memory."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that comes twice, of which one would be ignored."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [key for key, count in Counter(keys).items() if count > 1]:
            raise yaml.YAMLError(f"the key '{twice[0]}' comes more than once")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def parse_yaml(text: str, where: str) -> Any:
    """Read YAML safely, or raise an error that says where it is wrong."""
    if len(text) > MOST_CHARACTERS:
        raise GoalError(f"{shorten(where)} is too long: {len(text):,} characters of YAML.")
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise GoalError(f"{shorten(where)} is not valid YAML: it is nested too deeply.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise GoalError(f"{shorten(where)} is not valid YAML: {shorten(str(error))}") from None
