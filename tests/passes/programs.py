"""Small programs for tests of passes: built with `DlBuilder`, verified, and evaluated before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.backends.reference import evaluate
from dlc.dialects.dl.base import tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.dtypes import element_type
from dlc.instrument.verify import verify
from dlc.ir import (
    Block,
    Context,
    FunctionType,
    ModuleOp,
    ModulePass,
    NameLoc,
    NoneAttr,
    Region,
    SSAValue,
    StringAttr,
    func,
)
from dlc.weights import WeightStore

Array = NDArray[Any]


@dataclass
class Program:
    """A module with one function `@main`, the weights beside it, and inputs to run it with."""

    module: ModuleOp
    weights: WeightStore
    inputs: Sequence[Array]
    expected: list[Array] = field(default_factory=list)

    def run(self) -> list[Array]:
        return evaluate(self.module, self.inputs, self.weights)

    def apply(self, *passes: ModulePass, tolerance: float = 0.0) -> Program:
        """Runs passes; after each the module verifies and computes what it did at first."""
        if not self.expected:
            self.expected = self.run()
        for p in passes:
            p.apply(Context(), self.module)
            verify(self.module)
            for got, expected in zip(self.run(), self.expected, strict=True):
                np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=p.name)
        return self

    @property
    def main(self) -> func.FuncOp:
        return next(op for op in self.module.ops if isinstance(op, func.FuncOp))

    @property
    def ops(self) -> list[str]:
        """The ops of `@main` in order, without weights, constants, the return and the prefix `dl.`."""
        names = [op.name.removeprefix("dl.") for op in self.main.body.block.ops]
        return [n for n in names if n not in ("weight", "constant", "func.return")]


class Writer(DlBuilder):
    """A builder that also makes weights, and gives each op a location of its own: `op0`, `op1`, …"""

    def __init__(self, block: Block, weights: WeightStore) -> None:
        super().__init__(block)
        self.weights = weights
        self.count = 0

    def insert(self, op: Any) -> Any:
        self.location = NameLoc(StringAttr(f"op{self.count}"), NoneAttr())
        self.count += 1
        return super().insert(op)

    def weight(self, array: Array) -> SSAValue:
        type_ = tensor_type(array.shape, element_type(array.dtype))
        return self.insert(WeightOp.of(self.weights.add(array), array, type_)).results[0]


def program(body: Callable[..., SSAValue | Sequence[SSAValue]], *inputs: Array) -> Program:
    """The program that `body(writer, *arguments)` writes, with these inputs."""
    types = [tensor_type(x.shape, element_type(x.dtype)) for x in inputs]
    block, weights = Block(arg_types=types), WeightStore()
    results = body(Writer(block, weights), *block.args)
    results = [results] if isinstance(results, SSAValue) else list(results)
    block.add_op(func.ReturnOp(*results))
    main = func.FuncOp("main", FunctionType.from_lists(types, [r.type for r in results]), Region(block))
    return Program(ModuleOp([main]), weights, inputs)


def randoms(*shapes: tuple[int, ...], seed: int = 0) -> list[Array]:
    """Normally distributed f32 arrays of these shapes."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s, dtype=np.float32) for s in shapes]
