"""Models by what they were compiled for, such as sizes: those that were asked for last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from time import perf_counter
from typing import Generic, TypeVar

from dlc.runtime.models.model import Model
from dlc.runtime.models.recompilations import Recompilations

Key = TypeVar("Key")

# What was not asked for longest makes room for new ones.
MOST = 128


class Kept(Generic[Key]):
    """A model for each key; `make` makes those that are not there."""

    def __init__(
        self,
        make: Callable[[Key], Model],
        made: Mapping[Key, Model] | None = None,
        *,
        recompilations: Recompilations | None = None,
        tell: Callable[[Key], Mapping[str, str]] = lambda key: {},
    ) -> None:
        """Where a model is compiled for each key, `recompilations` counts them, and hears of a key by what `tell` says."""
        self._make = make
        self._recompilations, self._tell = recompilations, tell
        self._made = dict(made or {})
        self._lock, self._making = Lock(), Lock()

    def __getitem__(self, key: Key) -> Model:
        """The model for a key. Raises what `make` raises."""
        model = self._find(key)
        if model is None:
            with self._making:
                model = self._find(key)
                if model is None:
                    began = perf_counter()
                    model = self._make(key)
                    if self._recompilations is not None:
                        self._recompilations.note(self._tell(key), perf_counter() - began)
                    with self._lock:
                        if len(self._made) >= MOST:
                            del self._made[next(iter(self._made))]
                        self._made[key] = model
        return model

    @property
    def made(self) -> dict[Key, Model]:
        """What there is, in the order in which it was asked for."""
        with self._lock:
            return dict(self._made)

    def _find(self, key: Key) -> Model | None:
        with self._lock:
            model = self._made.pop(key, None)
            if model is not None:
                self._made[key] = model
            return model
