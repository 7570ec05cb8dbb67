"""Programs whose data decides sizes, part by part, for the sizes that it decides on given inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dlc.backends.reference import evaluate
from dlc.compiler.compilation import Compilation
from dlc.compiler.segments import Hosted, Part, Segments, split
from dlc.dialects.dl.base import Array, shape_of
from dlc.dialects.dl.data_dependent.selection import DecideOp
from dlc.dialects.dl.programs.binding import bound_op
from dlc.dialects.dl.programs.ranges import equal_of, ranges_of
from dlc.dialects.entry import entry_of
from dlc.dims import Range, bind_sizes, substitute
from dlc.ir import Block, ModuleOp, SSAValue
from dlc.passes.dl.programs.count_selections import counted
from dlc.passes.transformations.expand_transformations import expanded
from dlc.runtime.program.open_program import OutsideError

# Checks the compilation of a part on its inputs.
CheckPart = Callable[[Compilation, Sequence[Array]], object]


def parts_checked(c: Compilation, arrays: Sequence[Array], check: CheckPart) -> list[Array]:
    """The outputs of a program on these inputs; each of its parts is checked on what it is given first."""
    module = counted(expanded(c.program.module))
    return _Parts(c, module, check).run(split(replace(c.program, module=module)), arrays)


class _Parts:
    def __init__(self, c: Compilation, module: ModuleOp, check: CheckPart) -> None:
        self.c, self.check = c, check
        self.ranges, self.equal = ranges_of(module), equal_of(module)
        self.sizes: dict[str, int] = {}
        self.seen: set[Part] = set()

    def run(self, segments: Segments, arrays: Sequence[Array]) -> list[Array]:
        main = entry_of(segments.program.module).body.block
        values: dict[SSAValue, Array] = {}
        self.know(values, main.args, arrays)
        for step in segments.steps:
            inputs = [values[v] for v in step.inputs]
            match step:
                case Part():
                    self.know(values, step.outputs, self.part(step, inputs))
                case Hosted():
                    self.know(values, step.outputs, self.control(step, inputs, values))
                case _ if isinstance(step.op, DecideOp):
                    self.decide(step.op.symbol, int(inputs[0]))
                case _:
                    self.know(values, step.outputs, step.op.evaluate(*inputs))
        assert main.last_op is not None
        return [values[v] for v in main.last_op.operands]

    def know(self, values: dict[SSAValue, Array], names: Sequence[SSAValue], arrays: Sequence[Array]) -> None:
        """Notes values, and what sizes they have."""
        for name, array in zip(names, arrays, strict=True):
            values[name] = np.asarray(array)
            bind_sizes(shape_of(name), values[name].shape, self.sizes)
            expected = tuple(substitute(size, self.sizes) for size in shape_of(name))
            if values[name].shape != expected:
                raise OutsideError(f"{self.c.program.name}: a value of shape {values[name].shape}, expected {expected}")

    def decide(self, symbol: str, number: int) -> None:
        """Makes a number a size. Raises OutsideError for one that the program does not serve."""
        self.sizes[symbol] = number
        if number not in self.ranges.get(symbol, Range()) or number != self.sizes[self.equal.get(symbol, symbol)]:
            raise OutsideError(f"{self.c.program.name}: data decides that {symbol} is {number}")

    def part(self, part: Part, inputs: Sequence[Array]) -> Sequence[Array]:
        known = part.program.with_sizes(self.sizes)
        if part not in self.seen:
            self.seen.add(part)
            self.check(self.c.of(known, self.c.options), inputs)
        return evaluate(known.module, inputs, known.weights)

    def control(self, step: Hosted, inputs: Sequence[Array], values: dict[SSAValue, Array]) -> Sequence[Array]:
        own = bound_op(step.op, [a.shape for a in inputs], self.sizes)
        bodies = dict(zip(own.blocks, step.op.blocks, strict=True))

        def run(block: Block, arguments: Sequence[Array]) -> Sequence[Array]:
            segments, captured = step.bodies[bodies[block]]
            return self.run(segments, [*map(np.asarray, arguments), *(values[v] for v in captured)])

        return own.execute(inputs, run)
