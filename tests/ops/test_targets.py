"""Every sample, compiled as a program, on every target."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.compiler import Program, compile
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dims import Dim
from dlc.options import Options
from dlc.weights import WeightStore
from tests.ops.programs import module_of, op_of
from tests.ops.sample import Sample, assert_close
from tests.ops.samples import SAMPLES

TARGETS = ("reference", "cpu")

# Tolerance relative to the largest magnitude, by item size: rounding of intermediate values, and polynomial approximations.
ROUNDING = {2: 2e-2, 4: 4e-6, 8: 4e-14}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_sample(sample: Sample, target: str) -> None:
    # A data-dependent size is symbolic at compile time.
    module = module_of(sample, {"size": (Dim.symbol("k"),)} if issubclass(sample.op, SelectionOp) else None)
    dtypes = [numpy_dtype(element_type_of(r)) for r in op_of(module).results]
    model = compile(Program(module, WeightStore()), target, Options(num_threads=1, workers=1))
    results = model(*sample.operands).values()
    for got, expected in zip(results, sample.expected_results(dtypes), strict=True):
        tolerance = ROUNDING.get(expected.itemsize, 0.0) if expected.dtype.kind in "fV" else 0.0
        assert_close(np.asarray(got), expected, max(sample.tolerance, tolerance))
