"""The specialization cache: a dynamic-shape program for most sizes, and specializations for other sets of sizes.

The cache is keyed by the sizes of the inputs' symbols, which a call determines before it runs. If all input shapes are static,
it is keyed by data-dependent sizes: a program that does not support the sizes of a call raises OutOfDomainError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.dims import Dim, SizeRange, require_in_range, substitute
from dlc.errors import ShapeError
from dlc.runtime.models.lru_cache import LRUCache
from dlc.runtime.models.model import Model
from dlc.runtime.program.size_binding import OutOfDomainError
from dlc.runtime.saving.variant_table import Conditions, InputCondition
from dlc.runtime.sizes.domain import SizeDomain
from dlc.runtime.sizes.input_sizes import InputSizes

Sizes: TypeAlias = "tuple[int, ...]"
# Computes the data-dependent sizes of a call.
ComputeSizes: TypeAlias = "Callable[[Sequence[NDArray[Any]]], Sizes]"


@dataclass(frozen=True)
class Specialization:
    """A model that was compiled for a domain of sizes.

    Unless `is_guaranteed`, a call may find a data-dependent size outside of the domain and raise OutOfDomainError.
    """

    model: Model
    domain: SizeDomain = field(default_factory=SizeDomain)
    is_guaranteed: bool = True

    @property
    def covers_all_sizes(self) -> bool:
        """Return whether it is valid for every call."""
        return self.domain.is_unrestricted and self.is_guaranteed


@dataclass(frozen=True)
class SpecializationCache:
    """A program as several models: an optional dynamic-shape specialization, and static ones by the sizes of `symbols`.

    `symbols` are the symbols of the inputs, or the data-dependent sizes, which `compute_sizes` then computes.
    """

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    symbols: tuple[str, ...]
    dynamic: Specialization | None
    models: LRUCache[Sizes]
    compute_sizes: ComputeSizes | None = None
    ranges: Mapping[str, SizeRange] = field(default_factory=dict[str, SizeRange])

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Run the specialization that covers the sizes of these inputs; compile one if there is none.

        Raises ShapeError for a size outside of its range, or one that the program does not support.
        """
        sizes = dict(zip(self._sizes.symbols, self._sizes.of([array.shape for array in arrays]), strict=True))
        for info in self.inputs if self.ranges else ():
            require_in_range(f"input {info}", info.shape, sizes, self.ranges)
        if self.dynamic is not None and self._may_cover(sizes):
            with suppress(OutOfDomainError):
                return self.dynamic.model.check_and_run(arrays)
        if self.compute_sizes is None:
            return self.models[self._key(sizes)].check_and_run(arrays)
        for model in self._most_recent_first():
            with suppress(OutOfDomainError):
                return model.check_and_run(arrays)
        data_dependent_sizes = self.compute_sizes(arrays)
        try:
            return self.models[data_dependent_sizes].check_and_run(arrays)
        except OutOfDomainError as error:
            raise ShapeError(
                f"{self.name}: a data-dependent size takes several values in one call, and no specialization holds for all "
                f"of them: {error}"
            ) from error

    def _may_cover(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the input sizes are in the domain; data-dependent sizes are checked at run time."""
        assert self.dynamic is not None
        domain = self.dynamic.domain
        return domain.without(domain.symbols.difference(sizes)).holds(sizes)

    def _key(self, sizes: Mapping[str, int]) -> Sizes:
        missing = [s for s in self.symbols if s not in sizes]
        if missing:
            raise ShapeError(
                f"{self.name}: the size {missing[0]} is not determined by input shapes; inputs: {self.inputs_text}"
            )
        return tuple(sizes[s] for s in self.symbols)

    def _most_recent_first(self) -> Iterator[Model]:
        return reversed(self.models.entries.values())

    @cached_property
    def _sizes(self) -> InputSizes:
        return InputSizes(self.inputs)

    @property
    def inputs_text(self) -> str:
        """The inputs as text."""
        return ", ".join(map(str, self.inputs))

    @property
    def available_sizes(self) -> str:
        """The sizes for which there are specializations, as text."""
        dynamic = [str(self.dynamic.domain)] if self.dynamic is not None else []
        return "; ".join([*dynamic, *map(self.format_key, self.models.entries)])

    def conditions(self, key: Sizes) -> Conditions:
        """Return the conditions that select a specialization: the shape of each input with a symbolic dimension."""
        sizes = dict(zip(self.symbols, key, strict=True))
        dynamic_inputs = [
            info for info in self.inputs if sizes.keys() & {s for size in info.shape for s in Dim.lift(size).symbols()}
        ]
        shapes = [(info.name, tuple(int(substitute(size, sizes)) for size in info.shape)) for info in dynamic_inputs]
        return tuple(InputCondition(name, shape, str([*shape])) for name, shape in shapes)

    def format_key(self, key: Sizes) -> str:
        """Format sizes as text."""
        return ", ".join(f"{symbol} = {size}" for symbol, size in zip(self.symbols, key, strict=True))
