"""Every sample under `dl.vmap`, compared with the op on each batch entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.interfaces import Composite, DataDependent
from dlc.dialects.dl.programs.control import Control
from dlc.errors import UnsupportedError
from dlc.instrument.verify import verify
from dlc.ir import ArrayAttr, Block, DictionaryAttr, ModuleOp, Region, StringAttr, func
from dlc.options import Options
from dlc.passes.batching.control_flow import CONTROL
from dlc.passes.batching.expand_vmap import RULES, expand_vmap
from dlc.weights import WeightStore
from tests.ops.sample import Sample, assert_close
from tests.ops.samples import SAMPLES
from tests.ops.test_targets import ROUNDING
from tests.targets import NATIVE

BATCH_SIZE = 3
# Ops that no vmap body contains, and the reason.
OPS_WITHOUT_BATCHING: dict[type[DlOp], str] = {
    dl.ConstantOp: "the same in all lanes",
    dl.WeightOp: "the same in all lanes",
    dl.IotaOp: "the same in all lanes",
    dl.SizeOp: "the same in all lanes",
    dl.PackOp: "made by assign-layouts, when no transformation is left",
    dl.UnpackOp: "made by assign-layouts, when no transformation is left",
    dl.ViewAsI32Op: "made by quantized-contractions, when no transformation is left",
    dl.MatmulWeightOnlyOp: "made by weight-only-contractions, when no transformation is left",
    dl.MatmulWeightOnlyDotOp: "made by quantize-weights, when no transformation is left",
}


def stack_rotations(x: np.ndarray, differs: bool, count: int = BATCH_SIZE) -> np.ndarray:
    """Return a batch with rotations of the elements of `x`; an unbatched operand is returned unchanged."""
    return np.stack([np.roll(x, k) for k in range(BATCH_SIZE)])[:count] if differs else x


def module_of(
    sample: Sample, differs: Sequence[bool], axes: Sequence[int], count: int = BATCH_SIZE
) -> tuple[ModuleOp, list[np.ndarray]]:
    """Return the op in a `dl.vmap`, and its operands."""
    operands = [
        np.moveaxis(stack_rotations(x, d, count), 0, a) if d else x
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
        [func.FuncOp("main", types, Region(main), arg_attrs=named("x", types[0]), res_attrs=named("y", types[1]))]
    )
    verify(module)
    return module, operands


def named(prefix: str, values: Sequence[object]) -> ArrayAttr:
    return ArrayAttr([DictionaryAttr({"dl.name": StringAttr(f"{prefix}{i}")}) for i in range(len(values))])


def batched_operand_choices(sample: Sample) -> Iterator[tuple[bool, ...]]:
    """Yield which operands are batched: all of them, and each on its own."""
    count = len(sample.operands)
    yield (True,) * count
    if count > 1:
        for k in range(count):
            yield tuple(i == k for i in range(count))


def expand_all(module: ModuleOp) -> ModuleOp:
    for op in list(module.walk()):
        if isinstance(op, dl.VmapOp):
            expand_vmap(op)
    verify(module)
    return module


def expected(sample: Sample, differs: Sequence[bool], count: int = BATCH_SIZE) -> list[np.ndarray]:
    """Compute the results of the op for each batch entry."""
    op = sample.op.make(*Block(arg_types=sample.operand_types).args, **sample.properties)
    operands = list(map(stack_rotations, sample.operands, differs))
    entries = [[x[k] if d else x for x, d in zip(operands, differs, strict=True)] for k in range(BATCH_SIZE)]
    with np.errstate(all="ignore"):
        return [np.stack(results)[:count] for results in zip(*(op.evaluate(*entry) for entry in entries), strict=True)]


def batching_rule(op: type[DlOp]) -> object:
    """Return the batching rule of an op; the op itself if it is batched by its decomposition."""
    return next((RULES[c] for c in op.__mro__ if c in RULES), op)


def assert_all_close(sample: Sample, got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    for g, w in zip(got, want, strict=True):
        tolerance = ROUNDING.get(w.itemsize, 0.0) if w.dtype.kind in "fV" else 0.0
        assert_close(np.asarray(g), w, max(sample.tolerance, tolerance))


BATCHED = [s for s in SAMPLES if s.op not in OPS_WITHOUT_BATCHING and not issubclass(s.op, DataDependent)]
# One sample per op, and one per rule, for slower tests.
ONE_EACH = list({s.op: s for s in BATCHED}.values())
ONE_PER_RULE = list({batching_rule(s.op): s for s in ONE_EACH}.values())


@pytest.mark.parametrize("sample", BATCHED, ids=lambda s: s.name)
def test_samples_are_batched(sample: Sample) -> None:
    for differs in batched_operand_choices(sample):
        axes = [x.ndim * (k % 2) for k, x in enumerate(sample.operands)]
        module, operands = module_of(sample, differs, axes)
        assert_all_close(sample, evaluate(expand_all(module), operands, WeightStore()), expected(sample, differs))


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("sample", ONE_PER_RULE, ids=lambda s: s.name)
def test_batched_samples_on_targets(sample: Sample, target: str) -> None:
    differs = (True,) * len(sample.operands)
    module, operands = module_of(sample, differs, [0 for _ in differs])
    model = compile(Program(expand_all(module), WeightStore()), target, Options(num_threads=1, workers=1))
    assert_all_close(sample, [np.asarray(r) for r in model.run_unchecked(operands)], expected(sample, differs))


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("sample", ONE_EACH, ids=lambda s: s.name)
def test_batch_sizes_0_and_1(sample: Sample, count: int) -> None:
    for differs in batched_operand_choices(sample):
        module, operands = module_of(sample, differs, [0 for _ in differs], count)
        assert_all_close(sample, evaluate(expand_all(module), operands, WeightStore()), expected(sample, differs, count))


@pytest.mark.parametrize("sample", [s for s in SAMPLES if issubclass(s.op, DataDependent)], ids=lambda s: s.name)
def test_data_dependent_sizes_are_refused(sample: Sample) -> None:
    module, _ = module_of(sample, (True,) * len(sample.operands), [0 for _ in sample.operands])
    with pytest.raises(UnsupportedError, match="data-dependent result sizes"):
        expand_all(module)


def test_every_op_is_batched_or_listed() -> None:
    """Every op has a rule, a decomposition, or a reason for having neither."""
    ops = [op for op in dl.Dl.operations if issubclass(op, DlOp)]
    ruled = {op: issubclass(op, Composite) or batching_rule(op) is not op for op in ops}
    refused = {op: issubclass(op, DataDependent) and op is not dl.ForeignCallOp for op in ops}
    assert not [op.name for op in ops if ruled[op] + (op in OPS_WITHOUT_BATCHING) + refused[op] != 1]


def test_every_control_flow_op_is_batched() -> None:
    transformed = {dl.JvpOp, dl.VjpOp, dl.VmapOp}
    assert {op for op in dl.Dl.operations if issubclass(op, Control)} - transformed == set(CONTROL)
