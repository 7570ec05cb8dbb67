"""Specialize a program to one with static sizes, for the sizes of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from dlc.arrays import TensorInfo
from dlc.runtime.program.host_program import (
    ARENA_SLOT,
    Branch,
    BufferRef,
    CarriedSlot,
    Fail,
    HostArray,
    HostProgram,
    Instruction,
    Launch,
    Loop,
    LoopSlot,
    Parallel,
    PrintArrays,
    PythonCall,
    SetSize,
    While,
)
from dlc.runtime.program.size_binding import SizeBinder
from dlc.runtime.program.size_operations import SizeOperations
from dlc.shapes.dims import Size, substitute
from dlc.shapes.ranges import SizeRange


class ProgramSpecializer:
    """Creates the program with static sizes for given input shapes; regions of the arena are aligned to `alignment` bytes."""

    def __init__(self, program: HostProgram, alignment: int) -> None:
        self.program = program
        operations = SizeOperations(program, alignment)
        regions, arena_bytes = operations.arena_layout()
        self._region_slots = [slot for slot, _ in regions]
        self._bind = SizeBinder(operations, arena_bytes, [offset for _, offset in regions])

    def __call__(self, shapes: Sequence[tuple[int, ...]], data_dependent_sizes: Sequence[int] | None = None) -> HostProgram:
        """Return the program for inputs of these shapes and data-dependent sizes; by default these have their minimum.

        Raises what `SizeBinder` raises.
        """
        program = self.program
        data_dependent_sizes = program.initial_sizes if data_dependent_sizes is None else data_dependent_sizes
        bound = self._bind(shapes, data_dependent_sizes)
        rewriter = _InstructionSpecializer(
            program,
            dict(zip(self._region_slots, bound.values, strict=True)),
            self._bind.sizes(shapes, data_dependent_sizes),
        )
        return HostProgram(
            _with_shapes(program.inputs, shapes),
            _with_shapes(program.outputs, bound.outputs),
            program.weights,
            rewriter.block(program.instructions),
            bound.arena_bytes,
            loop_slots=program.loop_slots,
            donors=program.donors,
        )

    def representative(self) -> HostProgram:
        """Return the program for representative sizes."""
        program = self.program
        sizes = {symbol: program.ranges.get(symbol, SizeRange()).representative for symbol in program.symbols}
        shapes = [tuple(int(substitute(size, sizes)) for size in info.shape) for info in program.inputs]
        return self(shapes, [sizes[symbol] for symbol in program.data_dependent_sizes])


def _with_shapes(infos: Sequence[TensorInfo], shapes: Sequence[tuple[int, ...]]) -> tuple[TensorInfo, ...]:
    return tuple(replace(info, shape=shape) for info, shape in zip(infos, shapes, strict=True))


class _InstructionSpecializer:
    """Rewrites instructions: symbolic sizes become integers, regions become offsets in the arena."""

    def __init__(self, program: HostProgram, region_offsets: Mapping[int, int], sizes: Mapping[str, int]) -> None:
        self.first_region, self.region_offsets, self.sizes = program.first_region, region_offsets, sizes

        @cache
        def evaluate(size: Size) -> int:
            return int(substitute(size, sizes))

        # Most launches have the same few sizes.
        self.evaluate = evaluate

    def block(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        return tuple(map(self.instruction, instructions))

    def instruction(self, instruction: Instruction) -> Instruction:
        match instruction:
            case Launch():
                return self.launch(instruction)
            case Loop(count, carried, elements, body):
                specialized_elements = tuple(map(self.element, elements))
                return Loop(self.evaluate(count), self.carried(carried), specialized_elements, self.block(body))
            case While(begin, again, carried, body):
                return While(self.ref(begin), self.ref(again), self.carried(carried), self.block(body))
            case Branch(condition, then, otherwise):
                return Branch(self.ref(condition), self.block(then), self.block(otherwise))
            case Parallel(sections, max_threads):
                return Parallel(tuple(tuple(map(self.launch, section)) for section in sections), max_threads)
            case Fail(message, values):
                return Fail(message, tuple(map(self.ref, values)))
            case PrintArrays(format_parts, values):
                return PrintArrays(format_parts, self.arrays(values, self.sizes))
            case PythonCall(arguments=arguments, results=results, data_dependent_sizes=data_dependent_sizes):
                # Sizes that the op itself defines stay symbolic.
                sizes = {symbol: size for symbol, size in self.sizes.items() if symbol not in data_dependent_sizes}
                return replace(instruction, arguments=self.arrays(arguments, sizes), results=self.arrays(results, sizes))
            case SetSize(symbol, ref):
                return SetSize(symbol, self.ref(ref))

    def launch(self, launch: Launch) -> Launch:
        arguments = tuple(map(self.ref, launch.arguments))
        return Launch(launch.kernel, arguments, self.static_sizes(launch.sizes), self.static_sizes(launch.size_values))

    def arrays(self, arrays: Sequence[HostArray], sizes: Mapping[str, int]) -> tuple[HostArray, ...]:
        return tuple(replace(array.specialize(sizes), ref=self.ref(array.ref)) for array in arrays)

    def static_sizes(self, sizes: Sequence[Size]) -> tuple[int, ...]:
        return tuple(map(self.evaluate, sizes))

    def slot(self, slot: int) -> BufferRef:
        """Return the reference for a slot in the specialized program, which has no regions."""
        if slot < self.first_region:
            return slot, 0
        if slot in self.region_offsets:
            return ARENA_SLOT, self.region_offsets[slot]
        return slot - len(self.region_offsets), 0

    def ref(self, ref: tuple[int, Size]) -> BufferRef:
        slot, start = self.slot(ref[0])
        return slot, start + self.evaluate(ref[1])

    def element(self, element: LoopSlot) -> LoopSlot:
        return LoopSlot(self.slot(element.slot)[0], self.ref(element.first), self.evaluate(element.step))

    def carried(self, carried: Sequence[CarriedSlot]) -> tuple[CarriedSlot, ...]:
        return tuple(CarriedSlot(self.slot(c.slot)[0], self.ref(c.first), self.ref(c.following)) for c in carried)
