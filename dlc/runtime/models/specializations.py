"""Specializations: the programs of a function or model, and the guards under which each serves a call.

A call has an exact key (dtypes, ranks, static arguments, structure, values that determine shapes) and sizes. It runs a
program with the same key whose domain contains the sizes; if there is none, another program is compiled.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from time import perf_counter
from typing import Generic, TypeVar

from dlc.options import Environment
from dlc.shapes.domain import SizeDomain
from dlc.shapes.guards import violated_guard

Program = TypeVar("Program")

# When the cache is full, the least recently used program is evicted.
MAX_CACHED_PROGRAMS = 128
# More compilations than this trigger a warning.
_MAX_SILENT_RECOMPILATIONS = 8
# The number of calls whose program is found without evaluating guards.
_MAX_RECENT_CALLS = 4096


@dataclass(eq=False)
class Specialization(Generic[Program]):
    """A program, the exact `key` of the calls that it serves, and the domain of their sizes.

    Unless `is_guaranteed`, a call may find a data-dependent size outside of the domain and raise OutOfDomainError.
    """

    program: Program
    domain: SizeDomain = field(default_factory=SizeDomain)
    key: Hashable = ()
    is_guaranteed: bool = True
    last_use: int = 0

    @property
    def covers_all_sizes(self) -> bool:
        """Return whether it is valid for every call."""
        return self.domain.is_unrestricted and self.is_guaranteed


class Specializations(Generic[Program]):
    """The thread-safe, bounded cache of the specializations of the function or model `name`.

    `advice` tells users how to reduce the number of compilations.
    """

    def __init__(self, name: str, advice: str = "", entries: Iterable[Specialization[Program]] = ()) -> None:
        # The specialization of recent calls, by everything that determines it: the exact key with all sizes.
        self._by_call: dict[Hashable, Specialization[Program]] = {}
        self.num_compilations = 0
        self._name, self._advice = name, advice
        self._entries = list(entries)
        self._ticks = count(1)
        self._lock, self._compiling = Lock(), Lock()
        # The key and sizes of the last compilation, as text.
        self._last_description: Mapping[str, str] = {}

    @property
    def entries(self) -> list[Specialization[Program]]:
        """All specializations, in the order in which they were compiled."""
        with self._lock:
            return [*self._entries]

    def recent(self, call: Hashable) -> Specialization[Program] | None:
        """Return the specialization that served the same call before; None if it is unknown."""
        found = self._by_call.get(call)
        if found is not None:
            found.last_use = next(self._ticks)
        return found

    def find(
        self,
        call: Hashable,
        key: Hashable,
        sizes: Mapping[str, int],
        rejected: Collection[Specialization[Program]] = (),
    ) -> Specialization[Program] | None:
        """Return a specialization that serves a call, but none of `rejected`; None if there is none."""
        found = self.recent(call)
        if found is not None and found not in rejected:
            return found
        candidates = (entry for entry in self.entries if entry not in rejected and entry.key == key)
        found = next((entry for entry in candidates if entry.domain.may_hold(sizes)), None)
        if found is not None:
            if len(self._by_call) >= _MAX_RECENT_CALLS:
                self._by_call.clear()
            self._by_call[call] = found
            found.last_use = next(self._ticks)
        return found

    def compile(
        self,
        call: Hashable,
        key: Hashable,
        sizes: Mapping[str, int],
        build: Callable[[], Specialization[Program]],
        description: Mapping[str, str],
        rejected: Collection[Specialization[Program]] = (),
    ) -> Specialization[Program]:
        """Return a specialization that serves a call; `build` compiles it, unless another thread has done so.

        `description` is the key and sizes of the call for messages. Raises what `build` raises.
        """
        with self._compiling:
            if (found := self.find(call, key, sizes, rejected)) is not None:
                return found
            start, violation = perf_counter(), self.violation(key, sizes)
            built = build()
            built.key = key
            self.add(built)
            self._by_call[call] = built
            self._log(description, violation, perf_counter() - start)
            return built

    def violation(self, key: Hashable, sizes: Mapping[str, int]) -> str | None:
        """Describe the first guard of a specialization with this key that these sizes violate; None if there is none."""
        violations = (violated_guard(entry.domain.requirements, sizes) for entry in self.entries if entry.key == key)
        return next((guard.description for guard in violations if guard is not None), None)

    def add(self, specialization: Specialization[Program]) -> None:
        """Add a specialization; evict the least recently used one if the cache is full."""
        specialization.last_use = next(self._ticks)
        with self._lock:
            self._entries.append(specialization)
            if len(self._entries) > MAX_CACHED_PROGRAMS:
                oldest = min(self._entries, key=lambda entry: entry.last_use)
                self._entries.remove(oldest)
                # Calls that found it are looked up again.
                self._by_call = {call: entry for call, entry in [*self._by_call.items()] if entry is not oldest}

    def _log(self, description: Mapping[str, str], violation: str | None, seconds: float) -> None:
        """Log a compilation if `DLC_LOG=recompiles`, and warn about many."""
        previous, self._last_description = self._last_description, description
        self.num_compilations += 1
        changes = [
            f"{name}: {previous[name]} → {value}" for name, value in description.items() if previous.get(name, value) != value
        ]
        text = ", ".join(changes or [f"{name}: {value}" for name, value in description.items()])
        if "recompiles" in Environment.read().log:
            reason = "" if violation is None else f"; violated guard: {violation}"
            message = f"dlc: {self._name} compiled in {seconds:.2f} s, compilation {self.num_compilations}: {text}{reason}"
            print(message, file=sys.stderr)
        if self.num_compilations == _MAX_SILENT_RECOMPILATIONS + 1:
            warning = f"{self._name} was compiled {self.num_compilations} times, now for {text}; {self._advice}"
            warnings.warn(f"{warning}; DLC_LOG=recompiles shows each", stacklevel=2)
