"""The node tests of the onnx package, through `dlc.onnx_backend`.

Every input is passed at run time; the model is then specialized to the inputs that shapes depend on (axes, lengths). With
`--dynamic`, the sizes above 1 of the inputs are symbolic, and equal sizes are one symbol.
"""

from __future__ import annotations

import argparse
import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dlc import onnx_backend
from tests.suites.comparison import check_equal
from tests.suites.suite import Suite

# Some data is written with four digits.
_TOLERANCE = 5e-4
# Cases whose data contradicts what users of ONNX Runtime get, each with the reason.
DIFFERENT = {
    "test_resize_downsample_scales_linear_align_corners": "the data divides by the size before it is rounded",
    "test_resize_downsample_scales_cubic_align_corners": "the data divides by the size before it is rounded",
    **dict.fromkeys(
        (
            "test_bernoulli",
            "test_bernoulli_double",
            "test_bernoulli_double_expanded",
            "test_bernoulli_expanded",
            "test_bernoulli_seed",
            "test_bernoulli_seed_expanded",
            "test_training_dropout",
            "test_training_dropout_default",
            "test_training_dropout_default_mask",
            "test_training_dropout_mask",
        ),
        "the data is from another random number generator",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default="cpu", help="target of compile_model (default: cpu)")
    parser.add_argument("--dynamic", action="store_true", help="make the sizes of inputs symbolic")


def suite(arguments: argparse.Namespace) -> Suite:
    return node_suite(arguments.target, arguments.dynamic)


def node_suite(target: str, dynamic: bool = False) -> Suite:
    conditions = f"onnx {onnx.__version__}, target {target}{', symbolic sizes' if dynamic else ''}"
    return Suite(conditions, list(cases()), lambda name: run_node_test(name, target, dynamic), DIFFERENT)


@cache
def cases() -> dict[str, Any]:
    """Return the test cases by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in sorted(load_model_tests(kind="node"), key=lambda c: c.name)}


def run_node_test(name: str, target: str, dynamic: bool = False) -> str:
    """Run a case, and return how its model is specialized.

    Raises AssertionError for wrong results, and what `compile_model` and the model raise.
    """
    case = cases()[name]
    model = with_symbolic_sizes(case.model) if dynamic else case.model
    prepared = onnx_backend.prepare(model, target, num_threads=1, cache=False)
    # Sums in another order may round to the other neighbor.
    max_integer_error = int(target != "reference" and ("quant" in name or "qlinear" in name))
    for given, expected in case.data_sets:
        results = prepared.run([*map(_array, given)])
        for k, (got, wanted) in enumerate(zip(results, expected, strict=True)):
            _check(got, _array(wanted), f"output {k}", max_integer_error)
    return "specialized to the values of inputs" if prepared.model.values else "not specialized to values"


def with_symbolic_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which each size above 1 of its tensor inputs is a symbol, named by the size: n3."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for info in changed.graph.input:
        if info.type.WhichOneof("value") == "tensor_type":
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_value > 1:
                    dim.dim_param = f"n{dim.dim_value}"
    # Sizes of results follow from those of the inputs.
    for info in changed.graph.output:
        if info.type.WhichOneof("value") == "tensor_type":
            info.type.tensor_type.ClearField("shape")
    del changed.graph.value_info[:]
    return changed


def _array(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list | None):
        return value
    return np.asarray(value) if np.isscalar(value) else value


def _check(got: Any, expected: Any, label: str, max_integer_error: int) -> None:
    if expected is None:
        assert got is None, label
    elif isinstance(expected, list):
        for k, (part, wanted) in enumerate(zip(got, expected, strict=True)):
            _check(part, _array(wanted), f"{label}[{k}]", max_integer_error)
    elif np.asarray(expected).dtype.kind in "OU":
        assert np.asarray(got).tolist() == np.asarray(expected).tolist(), label
    else:
        tolerance = _TOLERANCE if np.asarray(expected).dtype in (np.float32, np.float64) else None
        check_equal(got, expected, label, tolerance=tolerance, max_integer_error=max_integer_error)
