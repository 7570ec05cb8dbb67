"""Models that one compilation is not enough for: what serves the sizes of most calls, and a model for each other set of them.

Sizes are those that the inputs of a call have, which are looked at before; or, where all of these are known, those that data
decides, of which a model finds out itself that it does not serve them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.dims import Dim, Range, require_in_range, substitute
from dlc.errors import ShapeError
from dlc.runtime.models.kept import Kept
from dlc.runtime.models.model import Model
from dlc.runtime.program.open_program import OutsideError
from dlc.runtime.saving.parts import Condition, Conditions
from dlc.runtime.sizes.domain import Domain
from dlc.runtime.sizes.input_sizes import InputSizes

Sizes: TypeAlias = "tuple[int, ...]"
# The sizes that data decides in a call.
Decide: TypeAlias = "Callable[[Sequence[NDArray[Any]]], Sizes]"


@dataclass(frozen=True)
class Served:
    """The model that one compilation made for the sizes of a domain; unless it `is_sure`, data may decide others."""

    model: Model
    domain: Domain = field(default_factory=Domain)
    is_sure: bool = True

    @property
    def is_all(self) -> bool:
        """Whether it is all that any call takes."""
        return self.domain.is_whole and self.is_sure


@dataclass(frozen=True)
class BySizes:
    """A program as several models: what serves most sizes, if anything does, and those for others, by the sizes of `symbols`.

    `symbols` are sizes of inputs; or, of a program with a way to `decide`, those that its data decides.
    """

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    symbols: tuple[str, ...]
    served: Served | None
    models: Kept[Sizes]
    decide: Decide | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The outputs for inputs that fit.

        Raises ShapeError for a size outside of its range, or that is not what the program expects.
        """
        sizes = dict(zip(self._sizes.symbols, self._sizes.of([array.shape for array in arrays]), strict=True))
        for info in self.inputs if self.ranges else ():
            require_in_range(f"input {info}", info.shape, sizes, self.ranges)
        if self.served is not None and self._serves(sizes):
            with suppress(OutsideError):
                return self.served.model.run_fitting(arrays)
        if self.decide is None:
            return self.models[self._key(sizes)].run_fitting(arrays)
        for model in self._last_made():
            with suppress(OutsideError):
                return model.run_fitting(arrays)
        decided = self.decide(arrays)
        try:
            return self.models[decided].run_fitting(arrays)
        except OutsideError as error:
            raise ShapeError(
                f"{self.name}: data decides a size more than once, and what follows holds for one of them at a time: {error}"
            ) from error

    def _serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether the sizes of inputs are in the domain; of what data decides nobody knows yet."""
        assert self.served is not None
        domain = self.served.domain
        return domain.without(domain.symbols.difference(sizes)).holds(sizes)

    def _key(self, sizes: Mapping[str, int]) -> Sizes:
        missing = [s for s in self.symbols if s not in sizes]
        if missing:
            raise ShapeError(f"{self.name}: the size {missing[0]} follows from no shape; inputs: {self.takes}")
        return tuple(sizes[s] for s in self.symbols)

    def _last_made(self) -> Iterator[Model]:
        return reversed(self.models.made.values())

    @cached_property
    def _sizes(self) -> InputSizes:
        return InputSizes(self.inputs)

    @property
    def takes(self) -> str:
        """The inputs in words."""
        return ", ".join(map(str, self.inputs))

    @property
    def holds(self) -> str:
        """The sizes in words that there are models for."""
        served = [str(self.served.domain)] if self.served is not None else []
        return "; ".join([*served, *map(self.shown, self.models.made)])

    def conditions(self, key: Sizes) -> Conditions:
        """What holds of the calls that have sizes of their inputs: the shapes of those that these are of."""
        sizes = dict(zip(self.symbols, key, strict=True))
        own = [info for info in self.inputs if sizes.keys() & {s for size in info.shape for s in Dim.lift(size).symbols()}]
        shapes = [(info.name, tuple(int(substitute(size, sizes)) for size in info.shape)) for info in own]
        return tuple(Condition(name, shape, str([*shape])) for name, shape in shapes)

    def shown(self, key: Sizes) -> str:
        """Sizes in words."""
        return ", ".join(f"{symbol} = {size}" for symbol, size in zip(self.symbols, key, strict=True))
