"""Random programs around an op, compiled and compared with the evaluator: the op in fused kernels and with other layouts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, rank_of, shape_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import is_float
from dlc.ir import Block, ModuleOp, Region, SSAValue, func
from dlc.options import Options
from dlc.testing.programs import named
from dlc.testing.sample import Sample, assert_close
from dlc.weights import WeightStore

# The error of a program of a few ops, relative to the largest magnitude, by item size.
_ROUNDING = {2: 1e-1, 4: 1e-4, 8: 1e-12}


def check_random_program(sample: Sample, seed: int, target: str) -> None:
    """Check the op with random producers and consumers of its float operands and results.

    Producers preserve the values of the operands: they transpose or reverse twice, add zero, select. Consumers are elementwise
    ops, reductions and transpositions.
    """
    choice = random.Random(seed)
    module, operands = _random_program(sample, choice)
    expected = evaluate(module.clone(), operands, WeightStore())
    model = compile(Program(module, WeightStore()), target, Options(num_threads=1, workers=1))
    for got, want in zip(model.run_unchecked(operands), expected, strict=True):
        tolerance = max(sample.tolerance, _ROUNDING.get(want.itemsize, 0.0) if want.dtype.kind in "fV" else 0.0)
        assert_close(np.asarray(got), np.asarray(want), tolerance)


def _random_program(sample: Sample, choice: random.Random) -> tuple[ModuleOp, list[NDArray[Any]]]:
    block = Block(arg_types=sample.operand_types)
    build = DlBuilder(block)
    op = build.insert(sample.op.make(*(_producer(build, v, choice) for v in block.args), **sample.properties))
    results: list[SSAValue] = [_consumer(build, r, op.results, choice) for r in op.results]
    build.insert(func.ReturnOp(*results))
    types = [a.type for a in block.args], [r.type for r in results]
    main = func.FuncOp("main", types, Region(block), arg_attrs=named("x", len(types[0])), res_attrs=named("y", len(types[1])))
    return ModuleOp([main]), list(sample.operands)


def _producer(build: DlBuilder, value: SSAValue, choice: random.Random) -> SSAValue:
    """Return an op's operand, computed from an input with the same values."""
    permutation = tuple(range(rank_of(value)))[::-1]
    match choice.randrange(4):
        case 0 if rank_of(value) > 1:
            return build(dl.TransposeOp, build(dl.TransposeOp, value, permutation=permutation), permutation=permutation)
        case 1 if rank_of(value):
            return build(dl.ReverseOp, build(dl.ReverseOp, value, axes=(0,)), axes=(0,))
        case 2 if is_float(element_type_of(value)):
            return build(dl.MaximumOp, value, value)
        case _:
            return value


def _consumer(build: DlBuilder, value: SSAValue, results: Sequence[SSAValue], choice: random.Random) -> SSAValue:
    """Return a result of the program, computed from a result of the op."""
    for _ in range(choice.randrange(3)):
        is_computed = is_float(element_type_of(value))
        match choice.randrange(4):
            case 0 if is_computed:
                value = build(dl.MulOp, value, build.scalar(choice.choice([0.5, 2.0, -1.0]), like=value))
            case 1 if is_computed:
                value = build(dl.TanhOp, value)
            case 2 if rank_of(value) and is_computed and 0 not in shape_of(value):
                value = build(dl.ReduceSumOp, value, axes=(choice.randrange(rank_of(value)),), keepdims=True)
            case 3 if rank_of(value) > 1:
                value = build(dl.TransposeOp, value, permutation=tuple(range(rank_of(value)))[::-1])
            case _:
                pass
    # The results of a program are distinct from its inputs.
    if value in results and is_float(element_type_of(value)):
        return build(dl.AddOp, value, build.scalar(1, like=value))
    return value
