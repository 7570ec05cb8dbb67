"""Every sample, compiled as a program of its own, on every target."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.compiler import Program, compile
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.options import Options
from dlc.weights import WeightStore
from tests.ops.programs import module_of, op_of
from tests.ops.sample import Sample, assert_close
from tests.ops.samples import SAMPLES

TARGETS = ("reference", "cpu")

# Relative to the largest magnitude, by size in bytes: the roundings of a formula's steps, native polynomials.
ROUNDING = {2: 2e-2, 4: 4e-6, 8: 4e-14}

_EMPTY = "structured ops over no elements have no extent to tile"
_GROUPED = "a grouped result is read in another order within its kernel"
# What a target does not compile yet, and why; a name here must not work.
KNOWN_GAPS: dict[str, dict[str, str]] = {
    "cpu": {
        "reduce_sum-float32-empty": _EMPTY,
        "reduce_prod-float32-empty": _EMPTY,
        "reduce_max-int8-empty": _EMPTY,
        "reduce_min-float32-empty": _EMPTY,
        "slice-uint8-empty": _EMPTY,
        "matmul-float32-empty": _EMPTY,
        "conv-float32-groups": _GROUPED,
        "conv-float32-depthwise_twice": _GROUPED,
        "conv_transpose-float32-groups": _GROUPED,
    }
}


def cases():
    for target in TARGETS:
        gaps = KNOWN_GAPS.get(target, {})
        for sample in SAMPLES:
            marks = [pytest.mark.xfail(reason=gaps[sample.name], strict=True)] if sample.name in gaps else []
            yield pytest.param(sample, target, id=f"{sample.name}-{target}", marks=marks)


def test_known_gaps_are_samples() -> None:
    names = {s.name for s in SAMPLES}
    assert all(gap in names for gaps in KNOWN_GAPS.values() for gap in gaps)


@pytest.mark.parametrize(("sample", "target"), cases())
def test_sample(sample: Sample, target: str) -> None:
    module = module_of(sample)
    dtypes = [numpy_dtype(element_type_of(r)) for r in op_of(module).results]
    model = compile(Program(module, WeightStore()), target, Options(num_threads=1, workers=1))
    results = model(*sample.operands).values()
    for got, expected in zip(results, sample.expected_results(dtypes), strict=True):
        tolerance = ROUNDING.get(expected.itemsize, 0.0) if expected.dtype.kind in "fV" else 0.0
        assert_close(np.asarray(got), expected, max(sample.tolerance, tolerance))
