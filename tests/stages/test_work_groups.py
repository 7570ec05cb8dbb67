"""Programs for devices with work-groups give equal results: evaluated at the end of the loops stage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.backends.opencl.backend import OpenCL
from dlc.backends.reference import evaluate
from dlc.compiler import Program, load_program
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.workgroup import is_workgroup
from dlc.ir import ModuleOp, gpu, memref
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.testing.op_checks import ROUNDING
from dlc.testing.programs import module_of, op_of
from dlc.testing.sample import Sample, assert_close
from dlc.weights import WeightStore
from tests.fuzz.bounded_value import difference
from tests.fuzz.draw_program import random_program
from tests.fuzz.random_program import Batch
from tests.mlir import accepted_by_mlir, needs_mlir
from tests.models.skeletons import path_of, recordings
from tests.ops.samples import SAMPLES

PROFILES = ("opencl:gpu", "opencl:small")


def lowered(program: Program, profile: str) -> Lowering:
    lowering = Lowering(Compilation(program, OpenCL(profile), Options(num_threads=1, workers=1)))
    lowering.until("loops")
    return lowering


def run(program: Program, profile: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    lowering = lowered(program, profile)
    return evaluate(lowering.module, inputs, lowering.weights)


def first_and_last_of_each_op() -> list[tuple[Sample, str]]:
    """Yield a sample of every op in kernels for the larger device, and another one for the smaller device."""
    by_op: dict[str, list[Sample]] = {}
    for sample in SAMPLES:
        if not issubclass(sample.op, DataDependent):
            by_op.setdefault(sample.op.name, []).append(sample)
    return [(samples[k], profile) for samples in by_op.values() for k, profile in zip((0, -1), PROFILES, strict=True)]


@pytest.mark.parametrize(("sample", "profile"), first_and_last_of_each_op(), ids=lambda v: getattr(v, "name", v))
def test_sample(sample: Sample, profile: str) -> None:
    module = module_of(sample)
    dtypes = [numpy_dtype(element_type_of(r)) for r in op_of(module).results]
    results = run(Program(module, WeightStore()), profile, sample.operands)
    for got, expected in zip(results, sample.expected_results(dtypes), strict=True):
        tolerance = ROUNDING.get(expected.itemsize, 0.0) if expected.dtype.kind in "fV" else 0.0
        assert_close(np.asarray(got), expected, max(sample.tolerance, tolerance))


@pytest.mark.filterwarnings("ignore:Mean of empty", "ignore:Degrees of freedom")
@pytest.mark.parametrize("start", range(0, 48, 6))
def test_random_programs(start: int) -> None:
    made = Batch(random_program, range(start, start + 6))
    results = run(made.program, PROFILES[start // 6 % 2], made.inputs)
    for owner, got, want in zip(made.owners, results, made.expected, strict=True):
        wrong = difference(np.asarray(got), want)
        assert wrong is None, f"program {owner}: {wrong}"


@needs_mlir
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ["mnist_cnn", "llama_tiny_prefill_16"])
def test_model(name: str, profile: str) -> None:
    feeds, recorded = next(recordings(name))
    program = load_program(path_of(name), {n: a.shape for n, a in feeds.items()})
    lowering = lowered(program, profile)
    results = evaluate(lowering.module, [feeds[info.name] for info in program.inputs], lowering.weights)
    for info, got in zip(program.outputs, results, strict=True):
        assert_close(got, recorded[info.name], 1e-5)
    accepted_by_mlir([ModuleOp([k.clone() for k in kernels_of(lowering.module)])])
    ops = list(lowering.module.walk())
    assert any(isinstance(op, gpu.BarrierOp) for op in ops)
    assert any(isinstance(op, memref.AllocaOp) and is_workgroup(op.memref) for op in ops)
