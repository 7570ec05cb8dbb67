"""The plug-ins of this process: those of entry points, and those that a script registers.

A plug-in that fails to load, or whose entries conflict with others, is reported by name in a warning; all others work. Its
failure disables writing to the cache of compiled programs, so that programs that lack its passes are not stored under its key.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any, cast

from dlc.errors import DlcError, UnsupportedError
from dlc.options import Environment
from dlc.plugins.plugin import Plugin

GROUP = "dlc.plugins"


@dataclass
class PluginStatus:
    """A plug-in of this process.

    Attributes:
        name: Its name.
        version: Its version; empty if it has none.
        origin: A distribution, or the file that declares it.
        plugin: Its declaration; None if it failed to load.
        source_digest: The hash of the sources of a registered plug-in; None if they are not in files.
        failures: The failures by table; the table `""` is the plug-in itself.
    """

    name: str
    version: str
    origin: str
    plugin: Plugin | None = None
    source_digest: str | None = None
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def fail(self, table: str, error: Exception) -> None:
        """Record a failure and warn about it, once per table."""
        if table in self.failures:
            return
        message = str(error) if isinstance(error, DlcError) else f"{type(error).__name__}: {error}"
        self.failures[table] = message
        what = f"its {table.replace('_', ' ')} are left out" if table else "it is left out"
        warnings.warn(f"plug-in {self.name} {self.version} ({self.origin}): {message}; {what}", stacklevel=2)


_lock = RLock()
_statuses: dict[str, PluginStatus] = {}
# The names of those that a script registered.
_registered: set[str] = set()
# The plug-ins in the order of loading; None before the discovery of entry points. Tables compare it by identity.
_loaded: tuple[PluginStatus, ...] | None = None


def register(plugin: Plugin) -> None:
    """Add a plug-in to this process, which replaces a registered one of the same name. Register it before compiling.

    Functions that are already compiled are not changed. Raises UnsupportedError for anything but a `dlc.extend.Plugin`.
    """
    global _loaded
    if not isinstance(cast(object, plugin), Plugin):
        raise UnsupportedError(f"dlc.register: expected a dlc.extend.Plugin, got a {type(plugin).__name__}")
    with _lock:
        _discover()
        digest = _source_digest(plugin.origin)
        _statuses[plugin.name] = PluginStatus(plugin.name, plugin.version or "", plugin.origin, plugin, digest)
        _registered.add(plugin.name)
        _loaded = tuple(_statuses.values())


def unregister(name: str) -> None:
    """Remove a plug-in from this process. Raises UnsupportedError if there is none of this name."""
    global _loaded
    with _lock:
        _discover()
        if _statuses.pop(name, None) is None:
            raise UnsupportedError(f"unregister: no plug-in {name!r}; `dlc plugins` lists them")
        _registered.discard(name)
        _loaded = tuple(_statuses.values())


def statuses() -> tuple[PluginStatus, ...]:
    """Return all plug-ins; the first call loads those of entry points."""
    if _loaded is None:
        with _lock:
            _discover()
    # While a plug-in is loaded, tables contain the entries of earlier ones only.
    return _loaded if _loaded is not None else ()


def has_failures() -> bool:
    """Return whether a plug-in has failed."""
    return any(status.failures for status in statuses())


def contributions(table: str) -> Iterator[tuple[PluginStatus, Any]]:
    """Yield the entries of each plug-in for a table; entries that cannot be imported are a failure of the plug-in."""
    for status in statuses():
        if status.plugin is None or not getattr(status.plugin, table):
            continue
        try:
            yield status, status.plugin.contribution(table)
        except Exception as error:
            status.fail(table, error)


def key_text() -> str:
    """Return the plug-ins with their versions and hashes of their sources, for cache keys; this does not load them."""
    plugins = {entry.name: f"{_version(entry)} sources {_entry_digest(entry)}" for entry in _entries()}
    plugins |= {name: f"{_statuses[name].version} sources {_statuses[name].source_digest}" for name in _registered}
    return ", ".join(f"{name} {text}" for name, text in sorted(plugins.items()))


def plugin_without_sources() -> str | None:
    """Return the name of a plug-in whose sources are unknown, so that cache keys cannot contain them; None if there is none."""
    installed = (entry.name for entry in _entries() if entry.name not in _registered and _entry_digest(entry) is None)
    return next((name for name in _registered if _statuses[name].source_digest is None), next(installed, None))


def _discover() -> None:
    """Load the plug-ins of entry points, once."""
    global _loaded, _is_discovering
    if _loaded is not None or _is_discovering:
        return
    _is_discovering = True
    try:
        for entry in _entries():
            status = PluginStatus(entry.name, _version(entry), _distribution(entry))
            try:
                status.plugin = _load(entry, status)
            except Exception as error:
                status.fail("", error)
            _statuses.setdefault(entry.name, status)
        _loaded = tuple(_statuses.values())
    finally:
        _is_discovering = False


_is_discovering = False


def _load(entry: EntryPoint, status: PluginStatus) -> Plugin:
    plugin = entry.load()
    if not isinstance(plugin, Plugin):
        raise UnsupportedError(f"{entry.value} is a {type(plugin).__name__}; expected a dlc.extend.Plugin")
    if entry.name in _statuses:
        raise UnsupportedError(f"{_statuses[entry.name].origin} has a plug-in of the same name")
    status.version = plugin.version or status.version
    return plugin


@lru_cache(maxsize=1)
def _entries() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP)) if Environment.read().plugins else ()


def _version(entry: EntryPoint) -> str:
    return entry.dist.version if entry.dist is not None else ""


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name}, {entry.value}" if entry.dist is not None else entry.value


@lru_cache
def _entry_digest(entry: EntryPoint) -> str | None:
    # The specification of a top-level module is found without importing it.
    spec = find_spec(entry.module.partition(".")[0])
    return None if spec is None or spec.origin is None else _source_digest(spec.origin)


def _source_digest(file: str) -> str | None:
    """Return a hash of the package that contains a file, or of the file alone; None if it does not exist."""
    path = Path(file)
    folder = path.parent
    if not path.is_file():
        return None
    if not (folder / "__init__.py").is_file():
        return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    digest = hashlib.blake2b(digest_size=8)
    for source in sorted(folder.rglob("*.py")):
        digest.update(f"{source.relative_to(folder)} {hashlib.blake2b(source.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
