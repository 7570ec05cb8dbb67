"""Random programs: every stage of the pipeline, run by the evaluator, and the native code compute what the program says."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.compiler.lowering import Lowering
from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.instrument.report import Report
from dlc.ir import Block, ModuleOp, Region, SSAValue, SymbolRefAttr, f32, func
from dlc.options import Options
from dlc.pipelines import HOST
from dlc.target import resolve
from dlc.weights import WeightStore

PROGRAMS, PER_TEST = 200, 10

UNARY = (dl.TanhOp, dl.SigmoidOp, dl.ReluOp, dl.NegOp, dl.AbsOp, dl.ExpOp, dl.SqrtOp, dl.FloorOp, dl.GeluOp, dl.SiluOp)
BINARY = (dl.AddOp, dl.SubOp, dl.MulOp, dl.MaximumOp, dl.MinimumOp)
REDUCTIONS = (dl.ReduceSumOp, dl.ReduceMaxOp, dl.ReduceMinOp, dl.ReduceMeanOp)


class Author:
    """Writes one random program of small tensors, whose numbers stay small."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.weights = WeightStore()
        shapes = [self.shape() for _ in range(self.random.integers(1, 4))]
        self.block = Block(arg_types=[tensor_type(s, f32) for s in shapes])
        self.build = Build(self.block)
        self.values: list[SSAValue] = list(self.block.args)

    def program(self) -> Program:
        """Ops over what there is, then a function that returns what nobody read, and one value more."""
        for _ in range(int(self.random.integers(3, 12))):
            step = self.pick(
                [self.unary, self.unary, self.binary, self.binary, self.reduction, self.matmul, self.transpose, self.reshape,
                 self.slice, self.pad, self.concat, self.rows, self.convolution, self.pool, self.broadcast]
            )  # fmt: skip
            value = step(self.pick(self.values))
            if value is not None:
                self.values.append(self.tamed(value))
        results = [v for v in self.values if not v.first_use and v not in self.block.args] or [self.values[-1]]
        results.append(self.pick(self.values))
        self.block.add_op(func.ReturnOp(*results))
        main = func.FuncOp("main", ([a.type for a in self.block.args], [r.type for r in results]), Region(self.block))
        return Program(ModuleOp([main]), self.weights)

    def pick(self, choices: list):
        return choices[int(self.random.integers(len(choices)))]

    def shape(self) -> tuple[int, ...]:
        rank = int(self.random.integers(1, 5))
        sizes = [int(n) for n in self.random.choice([1, 2, 3, 4, 5, 8, 16, 17, 33], rank)]
        # The evaluator takes loops step by step: what is large is slow and shows no more.
        while prod(sizes) > 2048:
            sizes[sizes.index(max(sizes))] //= 2
        return tuple(sizes)

    def weight(self, *shape: int) -> SSAValue:
        array = (self.random.standard_normal(shape) / 4).astype(np.float32)
        return self.build(dl.WeightOp, symbol=SymbolRefAttr(self.weights.add(array)), type=tensor_type(shape, f32))

    def tamed(self, value: SSAValue) -> SSAValue:
        """Keeps products of products from overflowing, where comparing says nothing."""
        if self.random.random() < 0.5:
            return value
        limit = self.build.scalar(8.0, like=value)
        return self.build(dl.MaximumOp, self.build(dl.MinimumOp, value, limit), self.build(dl.NegOp, limit))

    def unary(self, x: SSAValue) -> SSAValue:
        op = self.pick(list(UNARY))
        if op in (dl.ExpOp, dl.SqrtOp):
            x = self.build(dl.TanhOp, self.build(dl.AbsOp, x))
        return self.build(op, x, approximate="tanh") if op is dl.GeluOp else self.build(op, x)

    def binary(self, x: SSAValue) -> SSAValue:
        op, shape = self.pick(list(BINARY)), shape_of(x)
        same = [v for v in self.values if shape_of(v) == shape]
        if self.random.random() < 0.5:
            return self.build(op, x, self.pick(same))
        broadcast = tuple(n if self.random.random() < 0.6 else 1 for n in shape)
        return self.build(op, x, self.weight(*broadcast[int(self.random.integers(len(shape) + 1)) :]))

    def axes(self, x: SSAValue) -> tuple[int, ...]:
        rank = len(shape_of(x))
        return tuple(sorted(self.random.choice(rank, int(self.random.integers(1, rank + 1)), replace=False).tolist()))

    def reduction(self, x: SSAValue) -> SSAValue | None:
        if not shape_of(x):
            return None
        return self.build(self.pick(list(REDUCTIONS)), x, axes=self.axes(x), keepdims=bool(self.random.integers(2)))

    def matmul(self, x: SSAValue) -> SSAValue | None:
        if not shape_of(x):
            return None
        return self.build(dl.MatmulOp, x, self.weight(shape_of(x)[-1], int(self.random.choice([1, 3, 8, 16, 40]))))

    def transpose(self, x: SSAValue) -> SSAValue | None:
        rank = len(shape_of(x))
        return self.build(dl.TransposeOp, x, permutation=tuple(self.random.permutation(rank).tolist())) if rank else None

    def reshape(self, x: SSAValue) -> SSAValue:
        sizes = list(shape_of(x))
        if len(sizes) > 1 and self.random.random() < 0.7:
            k = int(self.random.integers(len(sizes) - 1))
            sizes[k : k + 2] = [sizes[k] * sizes[k + 1]]
        else:
            sizes.insert(int(self.random.integers(len(sizes) + 1)), 1)
        return self.build(dl.ReshapeOp, x, shape=tuple(sizes))

    def slice(self, x: SSAValue) -> SSAValue | None:
        shape = shape_of(x)
        if not shape:
            return None
        starts = [int(self.random.integers(n)) for n in shape]
        limits = [int(self.random.integers(s + 1, n + 1)) for s, n in zip(starts, shape, strict=True)]
        strides = [int(self.random.integers(1, 3)) for _ in shape]
        return self.build(dl.SliceOp, x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides))

    def pad(self, x: SSAValue) -> SSAValue | None:
        rank = len(shape_of(x))
        low, high = (tuple(self.random.integers(0, 3, rank).tolist()) for _ in range(2))
        return self.build(dl.PadOp, x, self.build.scalar(0.5, like=x), low=low, high=high) if rank else None

    def concat(self, x: SSAValue) -> SSAValue | None:
        shape = shape_of(x)
        if not shape:
            return None
        return self.build(dl.ConcatOp, x, self.build(dl.TanhOp, x), axis=int(self.random.integers(len(shape))))

    def rows(self, x: SSAValue) -> SSAValue | None:
        if not shape_of(x):
            return None
        if self.random.random() < 0.5:
            return self.build(dl.SoftmaxOp, x, axis=int(self.random.integers(len(shape_of(x)))))
        size = shape_of(x)[-1]
        return self.build(dl.LayerNormOp, x, self.weight(size), self.weight(size), axis=len(shape_of(x)) - 1, epsilon=1e-3)

    def convolution(self, x: SSAValue) -> SSAValue | None:
        shape = shape_of(x)
        if len(shape) != 4 or min(shape[1:3]) < 3:
            return None
        strides = tuple(self.random.integers(1, 3, 2).tolist())
        if self.random.random() < 0.3:
            w = self.weight(3, 3, 1, shape[3])
            return self.build(dl.ConvOp, x, w, strides=strides, dilations=(1, 1), groups=shape[3])
        w = self.weight(3, 2, shape[3], int(self.random.choice([1, 4, 16, 24])))
        return self.build(dl.ConvOp, x, w, strides=strides, dilations=(1, 1), groups=1)

    def pool(self, x: SSAValue) -> SSAValue | None:
        shape = shape_of(x)
        if len(shape) != 4 or min(shape[1:3]) < 2:
            return None
        op = self.pick([dl.MaxPoolOp, dl.SumPoolOp])
        return self.build(op, x, kernel=(2, 2), strides=(2, 1), dilations=(1, 1))

    def broadcast(self, x: SSAValue) -> SSAValue | None:
        return self.build(dl.BroadcastToOp, x, shape=(2, *shape_of(x))) if prod(shape_of(x)) < 2048 else None


def compare(got: list[NDArray], expected: list[NDArray], where: str) -> None:
    for k, (g, e) in enumerate(zip(got, expected, strict=True)):
        assert (g.shape, g.dtype) == (e.shape, e.dtype), f"{where}, output {k}"
        scale = max(1.0, float(np.abs(e).max(initial=0)))
        np.testing.assert_allclose(g, e, rtol=0, atol=1e-4 * scale, err_msg=f"{where}, output {k}")


@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_all_stages_and_native_code_agree(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        program = Author(seed).program()
        random = np.random.default_rng(seed)
        arrays = [random.standard_normal(i.shape).astype(i.dtype) for i in program.inputs]
        expected = evaluate(program.module, arrays, program.weights)
        lowering = Lowering(program, resolve("cpu"), Options(), Report())
        for stage in lowering.plan:
            lowering.host() if stage is HOST else lowering.run((stage,))
            compare(evaluate(lowering.module, arrays, lowering.weights), expected, f"program {seed}, stage {stage.name}")
        native = compile(program, options=Options(workers=1))(*arrays)
        compare(list(native.values()), expected, f"program {seed}, native code")
