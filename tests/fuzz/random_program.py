"""Random `dl` programs, seeded: what targets and stages are compared on.

A program grows op by op (recipes.py) from inputs, weights and constants that are made when an op wants them. Each op is
evaluated at once, so that every value has its array and the bound of its error (bounds.py); an op whose result nothing can
be said about is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from dlc.compiler import Program
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, DlOp, PropertyValue, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import element_type
from dlc.ir import ArrayAttr, Block, DictionaryAttr, ModuleOp, Operation, Region, SSAValue, StringAttr, SymbolRefAttr, func
from dlc.weights import WeightStore
from tests.fuzz.bounds import track
from tests.fuzz.draws import LARGEST_ARRAY, Draws, Unsuitable, is_extreme
from tests.fuzz.expected import track_scan
from tests.fuzz.tracked import Tracked


@dataclass(eq=False)
class Known:
    """A value of the program with its array and the bound of its error."""

    value: SSAValue
    tracked: Tracked

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tracked.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.tracked.array.dtype

    @property
    def exact(self) -> bool:
        return self.tracked.error is None

    @property
    def may_be_read(self) -> bool:
        """Panels are unpacked for contractions, by passes; other readers may be refused, so that it ends a program here."""
        return not isinstance(self.value.owner, dl.UnpackOp)


class RandomProgram(Draws[Known]):
    """The program of a seed: `inputs` for its arguments and what its `results` should be.

    Programs that are given one block and one store share a module.
    """

    def __init__(self, seed: int, block: Block | None = None, weights: WeightStore | None = None) -> None:
        super().__init__(seed)
        self.block = Block() if block is None else block
        self.build = Build(self.block)
        self.weights = WeightStore() if weights is None else weights
        self.inputs: list[Array] = []
        self.ops: set[type[DlOp]] = set()
        self.left_out: Collection[type[Operation]] = ()

    @property
    def made(self) -> list[Known]:
        """The values that ops compute."""
        return [v for v in self.values if not v.tracked.given]

    @property
    def results(self) -> list[Known]:
        """What the program returns: all that nothing else reads, and sometimes a value that something reads, or an input."""
        ends = [v for v in self.made if not any(True for _ in v.value.uses)]
        rest = [v for v in self.values if v not in ends]
        return ends + rest[-1:] * (self.seed % 5 == 0 or not ends)

    # Values

    def fresh(self, dtype: np.dtype, shape: Sequence[int], scale: float = 1.0) -> Known:
        """A new input, weight or constant."""
        return self.given(self.numbers_of(dtype, shape, scale))

    def given(self, array: Array) -> Known:
        """An input, weight or constant with these elements."""
        kind = self.random.random()
        array = np.ascontiguousarray(array).reshape(array.shape)
        if kind < 0.6 or is_extreme(array):
            self.inputs.append(array)
            of_type = tensor_type(array.shape, element_type(array.dtype))
            self.values.append(Known(self.block.insert_arg(of_type, len(self.block.args)), Tracked(array, given=True)))
            return self.values[-1]
        if kind < 0.85 or (array.size > 16 and (array != array.flat[0]).any()) or np.isnan(array.astype(np.float64)).any():
            return self.weight(array)
        return self.literal(array)

    def literal(self, array: Array) -> Known:
        """A constant with these elements."""
        value = self.build.constant(array, element_type(array.dtype))
        self.ops.add(dl.ConstantOp)
        self.values.append(Known(value, Tracked(array, given=True)))
        return self.values[-1]

    def weight(self, array: Array) -> Known:
        """A weight with these elements."""
        of_type = tensor_type(array.shape, element_type(array.dtype))
        value = self.build(dl.WeightOp, symbol=SymbolRefAttr(self.weights.add(array)), type=of_type)
        self.ops.add(dl.WeightOp)
        self.values.append(Known(value, Tracked(array, given=True)))
        return self.values[-1]

    # Ops

    def add(self, op: type[DlOp], *operands: Known, **properties: PropertyValue | None) -> Known:
        """The first result of a new op; raises Unsuitable, and adds nothing, if it is too large or nothing is known of it."""
        made = op.make(*(o.value for o in operands), **properties)
        if any(math.prod(int(s) for s in r.type.get_shape()) > LARGEST_ARRAY for r in made.results):
            raise Unsuitable
        known = self._added(made, track(made, *(o.tracked for o in operands)))
        self.ops.add(op)
        return known

    def scan(self, op: dl.ScanOp, state: Known, sequence: Known) -> Known:
        """The last state of a scan with one state and one sequence; raises Unsuitable if nothing is known of it."""
        return self._added(op, track_scan(op, [state.tracked, sequence.tracked]))

    def _added(self, op: Operation, tracked: Sequence[Tracked]) -> Known:
        if any(t.array.size and t.free.mean() > 0.5 for t in tracked):
            raise Unsuitable
        self.build.insert(op)
        results = [Known(r, t) for r, t in zip(op.results, tracked, strict=True)]
        self.values += results
        return results[0]


class Batch:
    """Independent programs as one module: `program`, `inputs`, and what each of its results should be.

    `owners` says whose each result is.
    """

    def __init__(self, made: Callable[[int, Block, WeightStore], RandomProgram], seeds: Sequence[int]) -> None:
        block, weights = Block(), WeightStore()
        programs = [made(seed, block, weights) for seed in seeds]
        self.ops = {op for p in programs for op in p.ops}
        self.inputs = [array for p in programs for array in p.inputs]
        results = [(p.seed, known) for p in programs for known in p.results]
        self.owners = [seed for seed, _ in results]
        self.expected = [known.tracked for _, known in results]
        values = [known.value for _, known in results]
        block.add_op(func.ReturnOp(*values))
        main = func.FuncOp("main", ([a.type for a in block.args], [v.type for v in values]), Region(block))
        main.arg_attrs, main.res_attrs = named_values("x", len(block.args)), named_values("y", len(values))
        self.program = Program(ModuleOp([main]), weights, f"random{seeds[0]}")


def named_values(prefix: str, count: int) -> ArrayAttr:
    """Names for arguments or results."""
    return ArrayAttr([DictionaryAttr({"dl.name": StringAttr(f"{prefix}{k}")}) for k in range(count)])
