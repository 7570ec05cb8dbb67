"""An LRU cache of models by a key, such as the sizes that they were compiled for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from time import perf_counter
from typing import Generic, TypeVar

from dlc.runtime.models.model import Model
from dlc.runtime.models.recompilations import Recompilations

Key = TypeVar("Key")

# When the cache is full, the least recently used entry is evicted.
MAX_CACHED_PROGRAMS = 128


class LRUCache(Generic[Key]):
    """A thread-safe LRU cache of models; `make` compiles missing ones."""

    def __init__(
        self,
        make: Callable[[Key], Model],
        entries: Mapping[Key, Model] | None = None,
        *,
        recompilations: Recompilations | None = None,
        describe: Callable[[Key], Mapping[str, str]] = lambda key: {},
    ) -> None:
        """`recompilations` counts the calls of `make`; `describe` formats a key for its messages."""
        self._make = make
        self._recompilations, self._describe = recompilations, describe
        self._entries = dict(entries or {})
        self._lock, self._making = Lock(), Lock()

    def __getitem__(self, key: Key) -> Model:
        """Return the model for a key; compile it if it is missing. Raises what `make` raises."""
        model = self._find(key)
        if model is None:
            with self._making:
                model = self._find(key)
                if model is None:
                    start = perf_counter()
                    model = self._make(key)
                    if self._recompilations is not None:
                        self._recompilations.note(self._describe(key), perf_counter() - start)
                    with self._lock:
                        if len(self._entries) >= MAX_CACHED_PROGRAMS:
                            del self._entries[next(iter(self._entries))]
                        self._entries[key] = model
        return model

    @property
    def entries(self) -> dict[Key, Model]:
        """All entries, least recently used first."""
        with self._lock:
            return dict(self._entries)

    def _find(self, key: Key) -> Model | None:
        with self._lock:
            model = self._entries.pop(key, None)
            if model is not None:
                self._entries[key] = model
            return model
