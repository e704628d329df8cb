"""Registries that other packages can add to: a plug-in declares an entry point, no fork needed.

Entry points are read when a registry is first asked for something, and a plug-in is imported when
its entry is first needed. One that is broken is named in a warning and left out.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import TypeVar

Spec = TypeVar("Spec")

_LOG = logging.getLogger(__name__)  # left alone, it writes bare lines to stderr
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")  # it becomes a part of paths
_LONGEST = 300


class Registry(MutableMapping[str, Spec]):
    """Entries by name: first the shipped ones, then those of plug-ins.

    Attributes:
        shipped: The entries that come with goal; no plug-in can take over their names.
    """

    def __init__(self, group: str, kind: type[Spec], shipped: Mapping[str, Spec]) -> None:
        """Start with the shipped entries.

        Args:
            group: Group of the entry points, such as ``goal.methods``.
            kind: What an entry is; the object of an entry point must be one.
            shipped: The entries that come with goal.
        """
        self.shipped: Mapping[str, Spec] = MappingProxyType(dict(shipped))
        self._group = group
        self._kind = kind
        self._entries = dict(shipped)
        self._packages: dict[str, str] = {}
        self._waiting: dict[str, EntryPoint] | None = None

    def __getitem__(self, name: str) -> Spec:
        self._load(name)
        return self._entries[name]

    def __setitem__(self, name: str, spec: Spec) -> None:
        self._forget(name)
        self._entries[name] = spec

    def __delitem__(self, name: str) -> None:
        self._load(name)
        del self._entries[name]
        self._forget(name)

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter(list(self._entries))

    def __len__(self) -> int:
        self._load_all()
        return len(self._entries)

    def package(self, name: str) -> str | None:
        """Return the package that an entry comes from; None if it is no plug-in."""
        return self._packages.get(name)

    def _forget(self, name: str) -> None:
        """Drop what a plug-in has, or is about to have, under a name."""
        self._packages.pop(name, None)
        (self._waiting or {}).pop(name, None)

    def _load_all(self) -> None:
        for name in list(self._found()):
            self._load(name)

    def _found(self) -> dict[str, EntryPoint]:
        """Entry points that are not imported yet, by name."""
        if self._waiting is None:
            self._waiting = {}
            for point in sorted(entry_points(group=self._group), key=_order):
                if reason := self._refusal(point.name):
                    _skip(point, reason)
                else:
                    self._waiting[point.name] = point
        return self._waiting

    def _refusal(self, name: str) -> str | None:
        """Say why a plug-in cannot have a name, if it cannot."""
        assert self._waiting is not None
        if not _PLAIN_NAME.fullmatch(name):
            return "a name is made of letters, digits and . _ + - alone"
        if name in self._entries:
            return "goal has an entry of that name itself"
        if name in self._waiting:
            return f"the package {_package(self._waiting[name])} has an entry of that name, too"
        return None

    def _load(self, name: str) -> None:
        """Import the plug-in of that name, if one is waiting."""
        point = self._found().pop(name, None)
        if point is None:
            return
        try:
            spec = point.load()
        except (Exception, SystemExit) as error:  # whatever a stranger's module does
            _skip(point, f"{type(error).__name__}: {error}")
            return
        if not isinstance(spec, self._kind):
            _skip(point, f"{point.value} is no {self._kind.__name__}, but of {type(spec)}")
            return
        self._entries[name] = spec
        self._packages[name] = _package(point)


def _order(point: EntryPoint) -> tuple[str, str]:
    return _package(point), point.name


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"


def _skip(point: EntryPoint, reason: str) -> None:
    """Name a plug-in that is left out and say why, in one line; of several ranks, one speaks."""
    if os.environ.get("RANK", "0") != "0":
        return
    text = (
        f"Skipped the plug-in '{point.name}' ({point.group}) of the package "
        f"{_package(point)}: {reason}"
    )
    line = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
    _LOG.warning("%s", line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...")
