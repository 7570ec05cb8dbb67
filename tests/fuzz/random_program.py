"""Random `dl` programs, on which targets and stages are compared.

A program grows op by op (recipes.py) from inputs, weights and constants that are created when an op needs them. Each op is
evaluated at once, so that every value has its array and its error bound (bounds.py). Ops with mostly unbounded results are left
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from dlc.compiler import Program
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, PropertyValue, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import element_type
from dlc.ir import ArrayAttr, Block, DictionaryAttr, ModuleOp, Operation, Region, SSAValue, StringAttr, func
from dlc.weights import WeightStore
from tests.fuzz.bounded_value import BoundedArray
from tests.fuzz.bounds import track
from tests.fuzz.program_bounds import track_scan
from tests.fuzz.random_values import MAX_ELEMENTS, RandomBuilder, Unsuitable, is_extreme


@dataclass(eq=False)
class ProgramValue:
    """A value of the program with its array and error bound."""

    value: SSAValue
    bounded: BoundedArray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bounded.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.bounded.array.dtype

    @property
    def exact(self) -> bool:
        return self.bounded.error is None

    @property
    def is_readable(self) -> bool:
        """True if later ops may read the value.

        The result of an unpack may only be read by contractions, so that it ends a program.
        """
        return not isinstance(self.value.owner, dl.UnpackOp)


class RandomProgram(RandomBuilder[ProgramValue]):
    """The program of a seed: its `inputs` and expected `results`.

    Programs that share a block and a weight store form one module.
    """

    def __init__(self, seed: int, block: Block | None = None, weights: WeightStore | None = None) -> None:
        super().__init__(seed)
        self.block = Block() if block is None else block
        self.build = DlBuilder(self.block)
        self.weights = WeightStore() if weights is None else weights
        self.inputs: list[Array] = []
        self.ops: set[type[DlOp]] = set()
        self.excluded_ops: Collection[type[Operation]] = ()

    @property
    def op_results(self) -> list[ProgramValue]:
        """The values that ops compute."""
        return [v for v in self.values if not v.bounded.is_source]

    @property
    def results(self) -> list[ProgramValue]:
        """The results of the program: all unused values, and sometimes a used value or an input."""
        ends = [v for v in self.op_results if not any(True for _ in v.value.uses)]
        rest = [v for v in self.values if v not in ends]
        return ends + rest[-1:] * (self.seed % 5 == 0 or not ends)

    # Values

    def fresh(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> ProgramValue:
        """Add a new input, weight or constant with random elements."""
        return self.source(self.random_array(dtype, shape, scale))

    def source(self, array: Array) -> ProgramValue:
        """Add an input, weight or constant with these elements."""
        kind = self.random.random()
        array = np.ascontiguousarray(array).reshape(array.shape)
        if kind < 0.6 or is_extreme(array):
            self.inputs.append(array)
            of_type = tensor_type(array.shape, element_type(array.dtype))
            self.values.append(
                ProgramValue(self.block.insert_arg(of_type, len(self.block.args)), BoundedArray(array, is_source=True))
            )
            return self.values[-1]
        if kind < 0.85 or (array.size > 16 and (array != array.flat[0]).any()) or np.isnan(array.astype(np.float64)).any():
            return self.weight(array)
        return self.literal(array)

    def literal(self, array: Array) -> ProgramValue:
        """Add a constant with these elements."""
        value = self.build.constant(array, element_type(array.dtype))
        self.ops.add(dl.ConstantOp)
        self.values.append(ProgramValue(value, BoundedArray(array, is_source=True)))
        return self.values[-1]

    def weight(self, array: Array) -> ProgramValue:
        """Add a weight with these elements."""
        of_type = tensor_type(array.shape, element_type(array.dtype))
        value = self.build.insert(dl.WeightOp.of(self.weights.add(array), array, of_type)).results[0]
        self.ops.add(dl.WeightOp)
        self.values.append(ProgramValue(value, BoundedArray(array, is_source=True)))
        return self.values[-1]

    # Ops

    def add(self, op: type[DlOp], *operands: ProgramValue, **properties: PropertyValue | None) -> ProgramValue:
        """Add an op and return its first result.

        Raises Unsuitable, and adds nothing, if a result is too large or mostly unbounded.
        """
        new_op = op.make(*(o.value for o in operands), **properties)
        if any(math.prod(int(s) for s in r.type.get_shape()) > MAX_ELEMENTS for r in new_op.results):
            raise Unsuitable
        result = self._added(new_op, track(new_op, *(o.bounded for o in operands)))
        self.ops.add(op)
        return result

    def scan(self, op: dl.ScanOp, state: ProgramValue, sequence: ProgramValue) -> ProgramValue:
        """Add a scan with one state and one sequence and return its last state. Raises Unsuitable if it is mostly unbounded."""
        return self._added(op, track_scan(op, [state.bounded, sequence.bounded]))

    def _added(self, op: Operation, bounded: Sequence[BoundedArray]) -> ProgramValue:
        if any(t.array.size and t.unbounded.mean() > 0.5 for t in bounded):
            raise Unsuitable
        self.build.insert(op)
        results = [ProgramValue(r, t) for r, t in zip(op.results, bounded, strict=True)]
        self.values += results
        return results[0]


class Batch:
    """Independent programs in one module: the `program`, its `inputs`, and its expected results.

    `owners` are the seeds of the programs that the results belong to.
    """

    def __init__(self, draw: Callable[[int, Block, WeightStore], RandomProgram], seeds: Sequence[int]) -> None:
        block, weights = Block(), WeightStore()
        programs = [draw(seed, block, weights) for seed in seeds]
        self.ops = {op for p in programs for op in p.ops}
        self.inputs = [array for p in programs for array in p.inputs]
        results = [(p.seed, result) for p in programs for result in p.results]
        self.owners = [seed for seed, _ in results]
        self.expected = [result.bounded for _, result in results]
        values = [result.value for _, result in results]
        block.add_op(func.ReturnOp(*values))
        main = func.FuncOp("main", ([a.type for a in block.args], [v.type for v in values]), Region(block))
        main.arg_attrs, main.res_attrs = named_values("x", len(block.args)), named_values("y", len(values))
        self.program = Program(ModuleOp([main]), weights, f"random{seeds[0]}")


def named_values(prefix: str, count: int) -> ArrayAttr:
    """Return names for arguments or results."""
    return ArrayAttr([DictionaryAttr({"dl.name": StringAttr(f"{prefix}{k}")}) for k in range(count)])
