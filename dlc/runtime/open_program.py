"""Host programs whose sizes come with a call: for known sizes they are ordinary ones.

Sizes are polynomials in the symbols of the inputs' shapes. Which buffers share memory is decided when the program is
compiled; how large they are, and so where each begins, when sizes are bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import ALIGNMENT, TensorInfo
from dlc.dims import Range, Size, bind_sizes, require_in_range, substitute
from dlc.errors import ModelError, ShapeError
from dlc.runtime.host_program import ARENA, FIRST_INPUT, NOTHING, HostProgram, Launch, check_program

# A size in bytes that no buffer has: addresses beyond could wrap around.
_TOO_LARGE = 1 << 62


@dataclass(frozen=True)
class OpenKernel:
    """What a kernel makes of its sizes `s0`, `s1`, …: the bytes of each of its buffers."""

    sizes: int
    bytes: tuple[Size, ...]


@dataclass(frozen=True)
class OpenLaunch:
    """A kernel, its buffers as (buffer, offset in bytes), and the sizes that it takes besides.

    Region k of the arena is buffer -1 - k. No kernel is a copy: target, source, and the number of bytes as its only size.
    """

    kernel: str | None
    arguments: tuple[tuple[int, Size], ...]
    sizes: tuple[Size, ...]


@dataclass(frozen=True)
class OpenProgram:
    """What runs in which order on which buffers; a region of the arena is as large as the largest of its sizes, in bytes."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    weights: tuple[TensorInfo, ...]
    ranges: Mapping[str, Range]
    regions: tuple[tuple[Size, ...], ...]
    launches: tuple[OpenLaunch, ...]

    @property
    def runs(self) -> Counter[str | None]:
        """How often each kernel runs."""
        return Counter(launch.kernel for launch in self.launches)

    def sizes(self, inputs: Sequence[NDArray[Any]]) -> dict[str, int]:
        """What the shapes of inputs make of the symbols.

        Raises ShapeError for inputs that do not fit one another, and for a size that is outside of its range.
        """
        sizes: dict[str, int] = {}
        for info, array in zip(self.inputs, inputs, strict=True):
            bind_sizes(info.shape, array.shape, sizes)
        for info, array in zip(self.inputs, inputs, strict=True):
            expected = tuple(substitute(size, sizes) for size in info.shape)
            if array.shape != expected:
                raise ShapeError(f"input {info} with {sizes}: expected {expected}, got {array.shape}")
            require_in_range(f"input {info}", info.shape, sizes, self.ranges)
        return sizes

    def at(self, sizes: Mapping[str, int], kernels: Mapping[str, OpenKernel]) -> HostProgram:
        """The program for these sizes.

        Raises ModelError where a launch is no part of the buffers then, whatever the program says.
        """

        bytes_of: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}

        def number(size: Size) -> int:
            # What a size is computed from may be negative: (-N) // 2, say.
            value = size if isinstance(size, int) else int(substitute(size, sizes))
            if not -_TOO_LARGE < value < _TOO_LARGE:
                raise ModelError(f"a size of {value} ({size})")
            return value

        def known(size: Size) -> int:
            value = number(size)
            if value < 0:
                raise ModelError(f"a size of {value} ({size})")
            return value

        def info(open_: TensorInfo) -> TensorInfo:
            return replace(open_, shape=tuple(map(known, open_.shape)))

        starts: list[int] = []
        end = 0
        for members in self.regions:
            starts.append(end)
            end += -(-max(map(known, members)) // ALIGNMENT) * ALIGNMENT

        def place(buffer: int, offset: Size) -> tuple[int, int]:
            return (buffer, known(offset)) if buffer >= 0 else (ARENA, starts[-1 - buffer] + known(offset))

        def launch(open_: OpenLaunch) -> Launch:
            places = tuple(place(*argument) for argument in open_.arguments)
            if open_.kernel is None:
                count = known(open_.sizes[0])
                return Launch(None, (*places, (NOTHING, count)), (count, count, 0))
            numbers = tuple(map(number, open_.sizes))
            kernel = kernels[open_.kernel]
            if len(numbers) != kernel.sizes:
                raise ModelError(f"a launch of {open_.kernel} gives {len(numbers)} sizes; it takes {kernel.sizes}")
            # Layers that are alike launch kernels that are, for the same sizes.
            key = open_.kernel, numbers
            if key not in bytes_of:
                own = kernel_sizes(numbers)
                bytes_of[key] = tuple(known(substitute(size, own)) for size in kernel.bytes)
            return Launch(open_.kernel, places, bytes_of[key], numbers)

        host = HostProgram(
            tuple(map(info, self.inputs)),
            tuple(map(info, self.outputs)),
            self.weights,
            end,
            FIRST_INPUT + len(self.inputs) + len(self.outputs) + len(self.weights),
            tuple(map(launch, self.launches)),
        )
        check_program(host, kernels)
        return host


def kernel_sizes(numbers: Sequence[int]) -> dict[str, int]:
    """The sizes of a kernel by the names that it has for them."""
    return {f"s{k}": number for k, number in enumerate(numbers)}
