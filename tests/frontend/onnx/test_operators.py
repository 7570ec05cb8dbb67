"""ONNX's own node tests: what the importer takes must compute what the specification's test data says.

A case that asks for something unsupported says so by its UnsupportedError; every operator has cases that pass.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from dlc.errors import UnsupportedError
from dlc.frontend.onnx import ImportedModel, import_model
from dlc.frontend.onnx.operators import OPERATORS
from dlc.frontend.onnx.registry import FIRST_OPSET, LAST_OPSET
from tests.frontend.onnx.build import run

# Cases whose data contradicts what users of ONNX Runtime get, each with the reason.
DIFFERENT = {
    "test_resize_downsample_scales_linear_align_corners": "the data divides by the size before it is rounded",
    "test_resize_downsample_scales_cubic_align_corners": "the data divides by the size before it is rounded",
}


@cache
def cases() -> dict[str, list[Any]]:
    """The suite's cases by operator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found: dict[str, list[Any]] = {}
        for case in collect_testcases(None):
            operators = {n.op_type for n in case.model.graph.node}
            if len(operators) == 1:
                found.setdefault(operators.pop(), []).append(case)
    return found


def array(value: Any) -> np.ndarray[Any, Any]:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def imported(case: Any) -> ImportedModel:
    """The case's model at a supported opset; inputs that have to be known at import become initialisers."""
    model = case.model
    for entry in model.opset_import:
        entry.version = min(max(entry.version, FIRST_OPSET), LAST_OPSET)
    known = dict(zip((v.name for v in model.graph.input), case.data_sets[0][0], strict=True))
    while True:
        try:
            return import_model(model)
        except UnsupportedError as error:
            held = {t.name for t in model.graph.initializer}
            wanted = set(re.findall(r"\(input '([^']+)'\) is computed", str(error))) & known.keys() - held
            if not wanted:
                raise
        for name in wanted:
            model.graph.initializer.append(numpy_helper.from_array(array(known[name]), name))


def tolerance(dtype: np.dtype[Any]) -> float:
    if dtype.name in ("float16", "bfloat16"):
        return {"float16": 4e-3, "bfloat16": 3e-2}[dtype.name]
    return 1e-4


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_operator(operator: str) -> None:
    passed = 0
    for case in cases().get(operator, []):
        if case.name in DIFFERENT:
            continue
        try:
            module = imported(case)
        except UnsupportedError:
            continue
        for given, expected in case.data_sets:
            feeds = {v.name: array(a) for v, a in zip(case.model.graph.input, given, strict=True)}
            got = run(module, feeds)
            for output, data in zip(case.model.graph.output, expected, strict=True):
                check(case.name, got[output.name], array(data))
        passed += 1
    assert passed


def check(name: str, got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(got, expected, err_msg=name)
    else:
        bound = tolerance(expected.dtype)
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), bound, bound, err_msg=name)
