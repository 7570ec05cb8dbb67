"""Bind a program to the sizes of a call: input shapes and data-dependent sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.errors import ModelError, ShapeError
from dlc.runtime.program.host_program import HostProgram
from dlc.runtime.program.size_operations import MAX_SIZE, SizeOperations
from dlc.shapes.guards import violated_guard
from dlc.shapes.input_sizes import InputSizes
from dlc.shapes.ranges import SizeRange
from dlc.shapes.size_code import RejectedSizesError

# Larger values could overflow addresses.
_MAX_ADDRESS_BYTES = 1 << 62


class OutOfDomainError(ShapeError):
    """The program does not support a data-dependent size."""


@dataclass(frozen=True)
class BoundSizes:
    """The sizes of a call: output shapes, the size of the arena, and the results of the operations of the executor."""

    outputs: tuple[tuple[int, ...], ...]
    arena_bytes: int
    values: tuple[int, ...]


class SizeBinder:
    """Binds a program to the sizes of calls; `values` are the operations whose results the executor needs."""

    def __init__(self, operations: SizeOperations, arena_bytes: int, values: Sequence[int]) -> None:
        self.host, code = operations.host, operations.code
        self.inputs = InputSizes(self.host.inputs)
        inputs, outputs = (code.operations_of([i.shape for i in infos]) for infos in (self.host.inputs, self.host.outputs))
        self._evaluate = code.function((inputs, outputs, arena_bytes, values))

    def sizes(self, shapes: Sequence[tuple[int, ...]], data_dependent_sizes: Sequence[int]) -> dict[str, int]:
        """Return the sizes of a call by name."""
        return dict(zip(self.host.symbols, (*self.inputs.of(shapes), *data_dependent_sizes), strict=True))

    def __call__(self, shapes: Sequence[tuple[int, ...]], data_dependent_sizes: Sequence[int] = ()) -> BoundSizes:
        """Bind the program to input shapes and data-dependent sizes.

        Raises ShapeError for inconsistent input shapes, and for a size outside of its range; raises ModelError if a launch is
        out of bounds.
        """
        try:
            inputs, outputs, arena_bytes, values = self._evaluate(*self.inputs.of(shapes), *data_dependent_sizes)
        except (IndexError, ZeroDivisionError) as error:
            raise ShapeError(f"{self.host.sizes(shapes)}: a size is undefined for these inputs: {error}") from error
        except RejectedSizesError as error:
            self.host.sizes(shapes)
            raise ModelError(f"a size is negative, or an access is out of bounds, for inputs of {shapes}") from error
        if inputs != tuple(shapes):
            self.host.sizes(shapes)
        if not -_MAX_ADDRESS_BYTES < min(values, default=0) <= max((arena_bytes, *values)) < _MAX_ADDRESS_BYTES:
            raise ModelError(f"sizes of {values} and an arena of {arena_bytes} bytes for inputs of {shapes}")
        return BoundSizes(outputs, arena_bytes, values)


def with_size(
    program: HostProgram, shapes: Sequence[tuple[int, ...]], previous: Sequence[int], symbol: str, size: int
) -> list[int]:
    """Return the data-dependent sizes after one of them has become known, given the input shapes and the `previous` sizes.

    If the size differs from the previous one, later ones are unknown again. Raises ModelError for an impossible size, and
    OutOfDomainError for one that the program does not support.
    """
    index = program.data_dependent_sizes.index(symbol)
    message = f"the data-dependent size {symbol} of {', '.join(map(str, program.inputs))} is {size}"
    if not 0 <= size <= MAX_SIZE:
        raise ModelError(message)
    if guards := program.guards_by_symbol[symbol]:
        earlier_sizes = dict(zip(program.data_dependent_sizes[:index], previous, strict=False))
        sizes = {**program.sizes(shapes), **earlier_sizes, symbol: size}
        if (guard := violated_guard(guards, sizes)) is not None:
            others = "".join(f", {s} = {sizes[s]}" for s in sorted(guard.size.symbols() - {symbol}))
            raise OutOfDomainError(f"{message}{others}; {guard.description}")
    range_ = program.ranges.get(symbol, SizeRange())
    if size not in range_:
        raise OutOfDomainError(f"{message}; the program is compiled for {range_}")
    return [*previous] if size == previous[index] else [*previous[:index], size, *program.initial_sizes[index + 1 :]]
