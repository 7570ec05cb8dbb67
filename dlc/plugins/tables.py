"""Tables of rules and converters, which built-in code defines and to which plug-ins add entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from dlc.errors import UnsupportedError
from dlc.plugins import registry
from dlc.plugins.registry import PluginStatus

K = TypeVar("K")
V = TypeVar("V")


class ExtensionTable(Mapping[K, V]):
    """A table of built-in `entries` and of those that plug-ins give for `name`, an attribute of `Plugin`.

    `convert` makes entries of what a plug-in gives; it raises DlcError if that is invalid. Entries of a plug-in
    that would replace others are omitted, as a failure of the plug-in.
    """

    def __init__(self, name: str, entries: Mapping[K, V], convert: Callable[[Any], Mapping[K, V]] = dict) -> None:
        self.builtin = entries
        self._name = name
        self._convert = convert
        self._statuses: tuple[PluginStatus, ...] = ()
        self._entries = entries

    def __getitem__(self, key: K) -> V:
        return self._current()[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())

    def _current(self) -> Mapping[K, V]:
        statuses = registry.statuses()
        if statuses is not self._statuses:
            self._entries, self._statuses = self._merged(), statuses
        return self._entries

    def _merged(self) -> Mapping[K, V]:
        entries = dict(self.builtin)
        for status, contribution in registry.contributions(self._name):
            try:
                added = self._convert(contribution)
                if repeated := [key for key in added if key in entries]:
                    names = ", ".join(getattr(key, "name", None) or str(key) for key in repeated)
                    raise UnsupportedError(f"{self._name.replace('_', ' ')}: {names} exist already")
                entries.update(added)
            except Exception as error:
                status.fail(self._name, error)
        return entries
