"""Every sample in lanes: what `dl.vmap` of the op becomes, beside the op for one lane after the other."""

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

LANES = 3
# Ops that are in no body, and the reason.
WITHOUT_LANES: dict[type[DlOp], str] = {
    dl.ConstantOp: "the same in all lanes",
    dl.WeightOp: "the same in all lanes",
    dl.IotaOp: "the same in all lanes",
    dl.SizeOp: "the same in all lanes",
    dl.PackOp: "made by assign-layouts, when no transformation is left",
    dl.UnpackOp: "made by assign-layouts, when no transformation is left",
    dl.WordsOp: "made by quantized-contractions, when no transformation is left",
    dl.MatmulWordsOp: "made by few-bit-weights, when no transformation is left",
    dl.MatmulDotsOp: "made by quantize-weights, when no transformation is left",
}


def in_lanes(x: np.ndarray, differs: bool, count: int = LANES) -> np.ndarray:
    """Lanes of the same elements in other places; an index stays one."""
    return np.stack([np.roll(x, k) for k in range(LANES)])[:count] if differs else x


def module_of(
    sample: Sample, differs: Sequence[bool], axes: Sequence[int], count: int = LANES
) -> tuple[ModuleOp, list[np.ndarray]]:
    """The op in lanes, before it is expanded, and its operands."""
    operands = [
        np.moveaxis(in_lanes(x, d, count), 0, a) if d else x for x, d, a in zip(sample.operands, differs, axes, strict=True)
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


def choices(sample: Sample) -> Iterator[tuple[bool, ...]]:
    """Which operands differ between lanes: all of them, and each by itself."""
    count = len(sample.operands)
    yield (True,) * count
    if count > 1:
        for k in range(count):
            yield tuple(i == k for i in range(count))


def expanded(module: ModuleOp) -> ModuleOp:
    for op in list(module.walk()):
        if isinstance(op, dl.VmapOp):
            expand_vmap(op)
    verify(module)
    return module


def expected(sample: Sample, differs: Sequence[bool], count: int = LANES) -> list[np.ndarray]:
    """The results of the op, lane by lane."""
    op = sample.op.make(*Block(arg_types=sample.operand_types).args, **sample.properties)
    operands = list(map(in_lanes, sample.operands, differs))
    lanes = [[x[k] if d else x for x, d in zip(operands, differs, strict=True)] for k in range(LANES)]
    with np.errstate(all="ignore"):
        return [np.stack(results)[:count] for results in zip(*(op.evaluate(*lane) for lane in lanes), strict=True)]


def rule_of(op: type[DlOp]) -> object:
    """The rule that an op is batched by; the op itself where that is its decomposition."""
    return next((RULES[c] for c in op.__mro__ if c in RULES), op)


def require_close(sample: Sample, got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    for g, w in zip(got, want, strict=True):
        tolerance = ROUNDING.get(w.itemsize, 0.0) if w.dtype.kind in "fV" else 0.0
        assert_close(np.asarray(g), w, max(sample.tolerance, tolerance))


BATCHED = [s for s in SAMPLES if s.op not in WITHOUT_LANES and not issubclass(s.op, DataDependent)]
# One sample of each op, and one for each rule, for what takes longer.
ONE_EACH = list({s.op: s for s in BATCHED}.values())
ONE_PER_RULE = list({rule_of(s.op): s for s in ONE_EACH}.values())


@pytest.mark.parametrize("sample", BATCHED, ids=lambda s: s.name)
def test_sample_in_lanes(sample: Sample) -> None:
    for differs in choices(sample):
        axes = [x.ndim * (k % 2) for k, x in enumerate(sample.operands)]
        module, operands = module_of(sample, differs, axes)
        require_close(sample, evaluate(expanded(module), operands, WeightStore()), expected(sample, differs))


@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("sample", ONE_PER_RULE, ids=lambda s: s.name)
def test_compiled(sample: Sample, target: str) -> None:
    differs = (True,) * len(sample.operands)
    module, operands = module_of(sample, differs, [0 for _ in differs])
    model = compile(Program(expanded(module), WeightStore()), target, Options(num_threads=1, workers=1))
    require_close(sample, [np.asarray(r) for r in model.run_unchecked(operands)], expected(sample, differs))


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("sample", ONE_EACH, ids=lambda s: s.name)
def test_no_lanes_and_one(sample: Sample, count: int) -> None:
    for differs in choices(sample):
        module, operands = module_of(sample, differs, [0 for _ in differs], count)
        require_close(sample, evaluate(expanded(module), operands, WeightStore()), expected(sample, differs, count))


@pytest.mark.parametrize("sample", [s for s in SAMPLES if issubclass(s.op, DataDependent)], ids=lambda s: s.name)
def test_sizes_that_are_data_are_refused(sample: Sample) -> None:
    module, _ = module_of(sample, (True,) * len(sample.operands), [0 for _ in sample.operands])
    with pytest.raises(UnsupportedError, match="sizes are data, and lanes of an array have one size"):
        expanded(module)


def test_every_op_is_batched_or_listed() -> None:
    """By a rule, by its decomposition, or not, for a reason."""
    ops = [op for op in dl.Dl.operations if issubclass(op, DlOp)]
    ruled = {op: issubclass(op, Composite) or rule_of(op) is not op for op in ops}
    assert not [op.name for op in ops if ruled[op] + (op in WITHOUT_LANES) + issubclass(op, DataDependent) != 1]


def test_every_loop_and_branch_is_batched() -> None:
    transformed = {dl.JvpOp, dl.VjpOp, dl.VmapOp}
    assert {op for op in dl.Dl.operations if issubclass(op, Control)} - transformed == set(CONTROL)
