"""Check programs with data-dependent sizes segment by segment, for the sizes that their inputs determine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dlc.backends.reference import evaluate
from dlc.compiler.compilation import Compilation
from dlc.compiler.segments import HostControlFlow, Segment, Segments, split
from dlc.dialects.dl.base import Array, shape_of
from dlc.dialects.dl.data_dependent.selection import BindSizeOp
from dlc.dialects.dl.programs.binding import bound_op
from dlc.dialects.dl.programs.size_ranges import guards_of, size_ranges
from dlc.dialects.entry import entry_of
from dlc.ir import Block, ModuleOp, SSAValue
from dlc.passes.dl.programs.selection_counts import decompose_selections
from dlc.passes.transformations.expand_transformations import expand_for_evaluation
from dlc.runtime.program.size_binding import OutOfDomainError
from dlc.shapes.dims import substitute
from dlc.shapes.guards import guards_by_last_symbol, violated_guard
from dlc.shapes.input_sizes import bind_sizes
from dlc.shapes.ranges import SizeRange

# Checks the compilation of a segment on its inputs.
CheckSegment = Callable[[Compilation, Sequence[Array]], object]


def check_segments(compilation: Compilation, arrays: Sequence[Array], check: CheckSegment) -> list[Array]:
    """Return the outputs of a program for these inputs; each segment is checked on its own inputs first."""
    module = decompose_selections(expand_for_evaluation(compilation.program.module))
    return _SegmentChecker(compilation, module, check).run(split(replace(compilation.program, module=module)), arrays)


class _SegmentChecker:
    def __init__(self, compilation: Compilation, module: ModuleOp, check: CheckSegment) -> None:
        self.compilation, self.check = compilation, check
        self.ranges = size_ranges(module)
        sizes = [op.symbol for op in module.walk() if isinstance(op, BindSizeOp)]
        self.guards = guards_by_last_symbol(guards_of(entry_of(module)), [*compilation.program.sizes, *sizes])
        self.sizes: dict[str, int] = {}
        self.checked_segments: set[Segment] = set()

    def run(self, segments: Segments, arrays: Sequence[Array]) -> list[Array]:
        entry = entry_of(segments.program.module).body.block
        values: dict[SSAValue, Array] = {}
        self.bind(values, entry.args, arrays)
        for step in segments.steps:
            inputs = [values[v] for v in step.inputs]
            match step:
                case Segment():
                    self.bind(values, step.outputs, self.segment(step, inputs))
                case HostControlFlow():
                    self.bind(values, step.outputs, self.control(step, inputs, values))
                case _ if isinstance(step.op, BindSizeOp):
                    self.set_size(step.op.symbol, int(inputs[0]))
                case _:
                    self.bind(values, step.outputs, step.op.evaluate(*inputs))
        assert entry.last_op is not None
        return [values[v] for v in entry.last_op.operands]

    def bind(self, values: dict[SSAValue, Array], names: Sequence[SSAValue], arrays: Sequence[Array]) -> None:
        """Bind values to arrays, and their symbolic dimensions to sizes."""
        for name, array in zip(names, arrays, strict=True):
            values[name] = np.asarray(array)
            bind_sizes(shape_of(name), values[name].shape, self.sizes)
            expected = tuple(substitute(size, self.sizes) for size in shape_of(name))
            if values[name].shape != expected:
                raise OutOfDomainError(
                    f"{self.compilation.program.name}: a value of shape {values[name].shape}, expected {expected}"
                )

    def set_size(self, symbol: str, size: int) -> None:
        """Bind a data-dependent size. Raises OutOfDomainError for a size outside of the program's domain."""
        self.sizes[symbol] = size
        if size not in self.ranges.get(symbol, SizeRange()) or violated_guard(self.guards[symbol], self.sizes) is not None:
            raise OutOfDomainError(
                f"{self.compilation.program.name}: the data-dependent size {symbol} is {size}, outside of its domain"
            )

    def segment(self, segment: Segment, inputs: Sequence[Array]) -> Sequence[Array]:
        static_program = segment.program.with_sizes(self.sizes)
        if segment not in self.checked_segments:
            self.checked_segments.add(segment)
            self.check(self.compilation.for_program(static_program, self.compilation.options), inputs)
        return evaluate(static_program.module, inputs, static_program.weights)

    def control(self, step: HostControlFlow, inputs: Sequence[Array], values: dict[SSAValue, Array]) -> Sequence[Array]:
        static_op = bound_op(step.op, [a.shape for a in inputs], self.sizes)
        bodies = dict(zip(static_op.blocks, step.op.blocks, strict=True))

        def run(block: Block, arguments: Sequence[Array]) -> Sequence[Array]:
            segments, captured = step.bodies[bodies[block]]
            return self.run(segments, [*map(np.asarray, arguments), *(values[v] for v in captured)])

        return static_op.execute(inputs, run)
