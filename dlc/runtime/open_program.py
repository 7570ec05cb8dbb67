"""Host programs whose sizes come with a call.

Sizes are polynomials in the symbols of the inputs' shapes. Which buffers share memory is decided when the program is
compiled; how large they are, and so where each begins, when sizes are bound: by one function of all of them. Whether what
kernels are given are parts of the buffers is seen from the polynomials as far as they say, once; the rest in each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from dlc.arrays import ALIGNMENT, TensorInfo
from dlc.dims import Range, Size, bind_sizes, never_negative, product, require_in_range, substitute
from dlc.errors import ModelError, ShapeError
from dlc.runtime.host_program import FIRST_INPUT, Launch, Place
from dlc.runtime.input_sizes import InputSizes
from dlc.runtime.size_function import size_function

# Beyond, addresses could wrap around.
_TOO_LARGE = 1 << 62


@dataclass(frozen=True)
class OpenKernel:
    """What a kernel makes of its sizes `s0`, `s1`, …: the bytes of each of its buffers."""

    sizes: int
    bytes: tuple[Size, ...]


@dataclass(frozen=True)
class OpenLaunch:
    """A kernel, its arguments as places, and the numbers that it takes besides: sizes.

    No kernel is a copy: target, source, and the number of bytes as its only number. `sizes`, those of the arguments in bytes,
    are what the kernel makes of its numbers; before it is known, there are none.
    """

    kernel: str | None
    arguments: tuple[Place, ...]
    numbers: tuple[Size, ...]
    sizes: tuple[Size, ...] = ()

    def of(self, kernels: Mapping[str, OpenKernel]) -> OpenLaunch:
        """This launch of one of `kernels`. Raises ModelError for one that is of none of them."""
        if self.kernel is None:
            expected, sizes = 1, self.numbers * 2
        elif self.kernel in kernels:
            kernel = kernels[self.kernel]
            expected, sizes = kernel.sizes, tuple(substitute(size, kernel_sizes(self.numbers)) for size in kernel.bytes)
        else:
            raise ModelError(f"a launch of {self.kernel}: there is no such kernel")
        got = len(self.numbers), len(self.arguments)
        if got != (expected, len(sizes)):
            raise ModelError(f"a launch of {self.kernel}: expected {expected} sizes and {len(sizes)} arguments, got {got}")
        return replace(self, sizes=sizes)

    def at(self, sizes: Mapping[str, int]) -> Launch:
        """This launch for the sizes of a call."""
        known = [[int(substitute(size, sizes)) for size in those] for those in (self.sizes, self.numbers)]
        return Launch(self.kernel, self.arguments, *map(tuple, known))


@dataclass(frozen=True)
class OpenProgram:
    """What runs in which order on which buffers. Behind the slots of the weights come those of the arena's regions, each as
    large as the largest of its sizes, in bytes; `slots` is how many there are in all."""

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

    @property
    def first_region(self) -> int:
        """The slot of the first region."""
        return FIRST_INPUT + len(self.inputs) + len(self.outputs) + len(self.weights)

    @property
    def slots(self) -> int:
        return self.first_region + len(self.regions)

    @property
    def buffers(self) -> dict[int, tuple[Size, ...]]:
        """By slot the sizes in bytes of which a buffer is as large as the largest."""
        infos = (*self.inputs, *self.outputs, *self.weights)
        return dict(enumerate((*((product(i.shape) * i.dtype.itemsize,) for i in infos), *self.regions), FIRST_INPUT))

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """What the shapes of inputs make of the symbols.

        Raises ShapeError for inputs that do not fit one another, and for a size that is outside of its range.
        """
        sizes: dict[str, int] = {}
        for info, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != len(info.shape):
                raise ShapeError(f"input {info}: got the shape {shape}")
            bind_sizes(info.shape, shape, sizes)
        for info, shape in zip(self.inputs, shapes, strict=True):
            expected = tuple(substitute(size, sizes) for size in info.shape)
            if shape != expected:
                raise ShapeError(f"input {info} with {sizes}: expected {expected}, got {shape}")
            require_in_range(f"input {info}", info.shape, sizes, self.ranges)
        return sizes


@dataclass(frozen=True)
class Bound:
    """What a program is for the sizes of a call: its outputs' shapes, where in the arena regions begin and the last one ends,
    and the numbers that whoever runs it asked for."""

    outputs: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]
    arena_bytes: int
    numbers: tuple[int, ...]


class Binder:
    """Binds the sizes of calls; `numbers` are those that whoever runs the launches needs.

    Raises ModelError for launches that are not on parts of the program's buffers whatever the sizes are.
    """

    def __init__(self, program: OpenProgram, launches: Sequence[OpenLaunch], numbers: Sequence[Size]) -> None:
        self.program = program
        self.inputs = InputSizes(program.inputs)
        buffers, ends = program.buffers, _ends(launches)
        if unknown := ends.keys() - buffers.keys():
            raise ModelError(f"launches on the slots {sorted(unknown)}, which hold no buffers")
        outputs = [info.shape for info in program.outputs]
        # What is not seen from the polynomials: which parts end within their buffers, and which sizes are not negative.
        open_ends = {slot: [end for end in ends[slot] if not _fits(end, buffers[slot])] for slot in ends}
        counts = chain(*(launch.sizes for launch in launches), *outputs, *program.regions)
        self._at = size_function(
            self.inputs.symbols,
            (
                [info.shape for info in program.inputs],
                outputs,
                list(map(_distinct, program.regions)),
                [(_distinct(buffers[slot]), _distinct(open_)) for slot, open_ in open_ends.items() if open_],
                (0, *_distinct(size for size in counts if not never_negative(size))),
                tuple(numbers),
            ),
        )
        symbols = self.inputs.symbols
        self._ranges = [(symbols.index(name), range_) for name, range_ in program.ranges.items() if name in symbols]

    def __call__(self, shapes: Sequence[tuple[int, ...]]) -> Bound:
        """The program for inputs of these shapes.

        Raises ShapeError for shapes that do not fit one another, and for a size that is outside of its range; ModelError where
        a launch is no part of the buffers then, whatever the program says.
        """
        try:
            sizes = self.inputs.of(shapes)
            inputs, outputs, regions, ends, counts, numbers = self._at(*sizes)
        except (IndexError, ZeroDivisionError) as error:
            raise ShapeError(f"{self.program.sizes(shapes)}: a size is no number then: {error}") from error
        if inputs != tuple(shapes) or not all(sizes[k] in range_ for k, range_ in self._ranges):
            self.program.sizes(shapes)
        if min(counts) < 0 or not -_TOO_LARGE < min(numbers, default=0) <= max(numbers, default=0) < _TOO_LARGE:
            raise ModelError(f"sizes of {min(counts)}, {numbers} for inputs of {shapes}")
        for members, parts in ends:
            if max(parts) > max(members):
                raise ModelError(f"a launch on {max(parts)} bytes of a buffer of {max(members)}, for inputs of {shapes}")
        starts: list[int] = []
        end = 0
        for members in regions:
            starts.append(end)
            end += -(-max(members) // ALIGNMENT) * ALIGNMENT
        return Bound(outputs, tuple(starts), end, numbers)


def kernel_sizes(numbers: Sequence[Size]) -> dict[str, Size]:
    """The sizes of a kernel by the names that it has for them."""
    return {f"s{k}": number for k, number in enumerate(numbers)}


def _ends(launches: Iterable[OpenLaunch]) -> dict[int, list[Size]]:
    """By slot, where parts that launches are given end."""
    found: dict[int, dict[Size, None]] = {}
    for launch in launches:
        for (slot, offset), size in zip(launch.arguments, launch.sizes, strict=True):
            found.setdefault(slot, {})[offset + size] = None
    return {slot: list(ends) for slot, ends in found.items()}


def _fits(end: Size, members: Iterable[Size]) -> bool:
    """Whether a part that ends there is seen to be in a buffer as large as the largest member."""
    return any(never_negative(member - end) for member in members)


def _distinct(sizes: Iterable[Size]) -> list[Size]:
    """Sizes as they are needed for the largest of them: each once, and of the known ones the largest."""
    distinct = dict.fromkeys(sizes)
    known = [size for size in distinct if isinstance(size, int)]
    return [*(size for size in distinct if not isinstance(size, int)), *([max(known)] if known else [])]
