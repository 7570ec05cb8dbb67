"""Specialize a dynamic-shape program to a static one for the sizes of a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dlc.arrays import TensorInfo
from dlc.dims import Dim, Size, SizeRange, substitute
from dlc.runtime.program.dynamic_program import BoundSizes, DynamicProgram, SizeBinder, resolve_launches
from dlc.runtime.program.host_program import (
    ARENA_SLOT,
    Branch,
    BufferRef,
    CarriedSlot,
    DynamicLaunch,
    Fail,
    HostArray,
    HostProgram,
    Instruction,
    KernelSignature,
    Launch,
    Loop,
    LoopSlot,
    PrintArrays,
    PythonCall,
    SetSize,
    While,
    walk,
)


class ProgramSpecializer:
    """Creates the static program for given input shapes; regions of the arena are aligned to `alignment` bytes."""

    def __init__(self, program: DynamicProgram, kernels: Mapping[str, KernelSignature], alignment: int) -> None:
        self.program = program
        self.instructions = resolve_launches(program.instructions, kernels)
        self._sizes = list(dict.fromkeys(s for s in _sizes_in(self.instructions) if not isinstance(s, int)))
        self._bind = SizeBinder(program, self.instructions, self._sizes, alignment)

    def __call__(self, shapes: Sequence[tuple[int, ...]], data_dependent_sizes: Sequence[int] | None = None) -> HostProgram:
        """Return the program for inputs of these shapes and data-dependent sizes; by default these have their minimum.

        Raises what `SizeBinder` raises.
        """
        program = self.program
        data_dependent_sizes = program.initial_sizes if data_dependent_sizes is None else data_dependent_sizes
        bound, sizes = self._bind(shapes, data_dependent_sizes), self._bind.sizes(shapes, data_dependent_sizes)
        evaluated = dict(zip(self._sizes, bound.extra_sizes, strict=True))
        return HostProgram(
            _shaped(program.inputs, shapes),
            _shaped(program.outputs, bound.outputs),
            program.weights,
            bound.arena_bytes,
            program.slots - len(program.regions),
            _InstructionSpecializer(program, bound, evaluated, sizes).block(self.instructions),
        )

    def representative(self) -> HostProgram:
        """Return the program for representative sizes."""
        shapes = [info.shape for info in self.program.inputs]
        symbols = {symbol for shape in shapes for size in shape for symbol in Dim.lift(size).symbols()}
        sizes = {
            s: self.program.ranges.get(s, SizeRange()).representative for s in (*symbols, *self.program.data_dependent_sizes)
        }
        static_sizes = [tuple(int(substitute(size, sizes)) for size in shape) for shape in shapes]
        return self(static_sizes, [sizes[symbol] for symbol in self.program.data_dependent_sizes])


def _shaped(infos: Sequence[TensorInfo], shapes: Sequence[tuple[int, ...]]) -> tuple[TensorInfo, ...]:
    return tuple(replace(info, shape=shape) for info, shape in zip(infos, shapes, strict=True))


def _sizes_in(instructions: Sequence[Instruction]) -> Iterator[Size]:
    for instruction, _ in walk(instructions):
        match instruction:
            case DynamicLaunch(size_values=size_values, sizes=sizes):
                yield from (*size_values, *sizes)
            case Loop(count=count, elements=elements):
                yield count
                for element in elements:
                    yield from (element.first[1], element.step)
            case _:
                pass


class _InstructionSpecializer:
    """Rewrites instructions: symbolic sizes become integers, regions become offsets in the arena."""

    def __init__(
        self, program: DynamicProgram, bound: BoundSizes, evaluated: Mapping[Dim, int], sizes: Mapping[str, int]
    ) -> None:
        self.first, self.starts, self.evaluated, self.sizes = program.first_region, bound.starts, evaluated, sizes

    def block(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        return tuple(map(self.instruction, instructions))

    def instruction(self, instruction: Instruction) -> Instruction:
        match instruction:
            case DynamicLaunch(kernel, arguments, size_values, sizes):
                return Launch(kernel, tuple(map(self.ref, arguments)), self.static_sizes(sizes), self.static_sizes(size_values))
            case Loop(count, carried, elements, body):
                specialized_elements = tuple(map(self.element, elements))
                return Loop(self.evaluate(count), self.carried(carried), specialized_elements, self.block(body))
            case While(begin, again, carried, body):
                return While(self.ref(begin), self.ref(again), self.carried(carried), self.block(body))
            case Branch(condition, then, otherwise):
                return Branch(self.ref(condition), self.block(then), self.block(otherwise))
            case Fail(message, values):
                return Fail(message, tuple(map(self.ref, values)))
            case PrintArrays(pieces, values):
                return PrintArrays(pieces, self.arrays(values, self.sizes))
            case PythonCall(arguments=arguments, results=results, data_dependent_sizes=data_dependent_sizes):
                # Sizes that the op itself defines stay symbolic.
                sizes = {symbol: size for symbol, size in self.sizes.items() if symbol not in data_dependent_sizes}
                return replace(instruction, arguments=self.arrays(arguments, sizes), results=self.arrays(results, sizes))
            case SetSize(symbol, ref):
                return SetSize(symbol, self.ref(ref))
            case Launch():
                return instruction

    def arrays(self, arrays: Sequence[HostArray], sizes: Mapping[str, int]) -> tuple[HostArray, ...]:
        return tuple(replace(array.specialize(sizes), ref=self.ref(array.ref)) for array in arrays)

    def evaluate(self, size: Size) -> int:
        return size if isinstance(size, int) else self.evaluated[size]

    def static_sizes(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        return tuple(map(self.evaluate, sizes))

    def slot(self, slot: int) -> BufferRef:
        """Return the static program's reference for a slot."""
        region = slot - self.first
        if region < 0:
            return slot, 0
        return (ARENA_SLOT, self.starts[region]) if region < len(self.starts) else (slot - len(self.starts), 0)

    def ref(self, ref: tuple[int, Size]) -> BufferRef:
        slot, start = self.slot(ref[0])
        return slot, start + self.evaluate(ref[1])

    def element(self, element: LoopSlot) -> LoopSlot:
        return LoopSlot(self.slot(element.slot)[0], self.ref(element.first), self.evaluate(element.step))

    def carried(self, carried: Sequence[CarriedSlot]) -> tuple[CarriedSlot, ...]:
        return tuple(CarriedSlot(self.slot(c.slot)[0], self.ref(c.first), self.ref(c.following)) for c in carried)
