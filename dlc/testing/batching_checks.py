"""Checks of an op under `dl.vmap`, compared with the op on each batch entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.dialects import dl
from dlc.dialects.dl.base import tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.instrument.verify import verify
from dlc.ir import Block, ModuleOp, Region, func
from dlc.options import Options
from dlc.passes.batching.expand_vmap import expand_vmap
from dlc.testing.op_checks import tolerance_on_targets
from dlc.testing.programs import named
from dlc.testing.sample import Sample, assert_close
from dlc.weights import WeightStore

BATCH_SIZE = 3


def check_batching(sample: Sample) -> None:
    """Check batches of all operands, and of each on its own, along the first and the last axis."""
    for differs in batched_operand_choices(sample):
        axes = [x.ndim * (k % 2) for k, x in enumerate(sample.operands)]
        module, operands = batched_module(sample, differs, axes)
        _assert_all_close(sample, evaluate(expand_all(module), operands, WeightStore()), _expected(sample, differs))


def check_small_batch(sample: Sample, count: int) -> None:
    """Check a batch of `count` (0 or 1) entries."""
    for differs in batched_operand_choices(sample):
        module, operands = batched_module(sample, differs, [0 for _ in differs], count)
        _assert_all_close(sample, evaluate(expand_all(module), operands, WeightStore()), _expected(sample, differs, count))


def check_batching_on_target(sample: Sample, target: str) -> None:
    """Check a batch of all operands in compiled code."""
    differs = (True,) * len(sample.operands)
    module, operands = batched_module(sample, differs, [0 for _ in differs])
    model = compile(Program(expand_all(module), WeightStore()), target, Options(num_threads=1, workers=1))
    _assert_all_close(sample, [np.asarray(r) for r in model.run_unchecked(operands)], _expected(sample, differs))


def batched_operand_choices(sample: Sample) -> Iterator[tuple[bool, ...]]:
    """Yield which operands are batched: all of them, and each on its own."""
    count = len(sample.operands)
    yield (True,) * count
    if count > 1:
        for k in range(count):
            yield tuple(i == k for i in range(count))


def batched_module(
    sample: Sample, differs: Sequence[bool], axes: Sequence[int], count: int = BATCH_SIZE
) -> tuple[ModuleOp, list[NDArray[Any]]]:
    """Return the op in a `dl.vmap`, and its operands."""
    operands = [
        np.moveaxis(_stack_rotations(x, d, count), 0, a) if d else x
        for x, d, a in zip(sample.operands, differs, axes, strict=True)
    ]
    body = Block(arg_types=sample.operand_types)
    op = sample.op.make(*body.args, **sample.properties)
    body.add_ops([op, dl.YieldOp(op.results)])
    main = Block(arg_types=[tensor_type(x.shape, element_type(x.dtype)) for x in operands])
    in_axes = [a if d else -1 for d, a in zip(differs, axes, strict=True)]
    vmap = dl.VmapOp.of(main.args, body, count, in_axes, [0 for _ in op.results])
    main.add_ops([vmap, func.ReturnOp(*vmap.results)])
    types = [a.type for a in main.args], [r.type for r in vmap.results]
    module = ModuleOp(
        [func.FuncOp("main", types, Region(main), arg_attrs=named("x", len(types[0])), res_attrs=named("y", len(types[1])))]
    )
    verify(module)
    return module, operands


def expand_all(module: ModuleOp) -> ModuleOp:
    """Expand each `dl.vmap` of a module in place, and return the module."""
    for op in list(module.walk()):
        if isinstance(op, dl.VmapOp):
            expand_vmap(op)
    verify(module)
    return module


def _stack_rotations(x: NDArray[Any], differs: bool, count: int = BATCH_SIZE) -> NDArray[Any]:
    """Return a batch with rotations of the elements of `x`; an unbatched operand is returned unchanged."""
    return np.stack([np.roll(x, k) for k in range(BATCH_SIZE)])[:count] if differs else x


def _expected(sample: Sample, differs: Sequence[bool], count: int = BATCH_SIZE) -> list[NDArray[Any]]:
    """Compute the results of the op for each batch entry."""
    op = sample.op.make(*Block(arg_types=sample.operand_types).args, **sample.properties)
    operands = list(map(_stack_rotations, sample.operands, differs))
    entries = [[x[k] if d else x for x, d in zip(operands, differs, strict=True)] for k in range(BATCH_SIZE)]
    with np.errstate(all="ignore"):
        return [np.stack(results)[:count] for results in zip(*(op.evaluate(*entry) for entry in entries), strict=True)]


def _assert_all_close(sample: Sample, got: Sequence[NDArray[Any]], want: Sequence[NDArray[Any]]) -> None:
    for g, w in zip(got, want, strict=True):
        assert_close(np.asarray(g), w, tolerance_on_targets(sample, w.dtype))
