"""Models in which data decides sizes, of which several tests and the fuzzers make files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import dlc
from dlc.compiler import Program
from dlc.frontend.onnx import import_model
from dlc.runtime.models.model import Model
from tests.frontend.onnx.build import model

POSITIVE = """
<ir_version: 10, opset_import: ["" : 21]>
positive (float[n] x, float[n] y) => (float[k] kept, float total, int64[m] late)
<float[1] w = {3.0}>
{
    zero = Constant<value_float = 0.0>()
    double = Mul(x, w)
    mask = Greater(double, zero)
    places = NonZero(mask)
    column = Transpose(places)
    taken = GatherND(y, column)
    kept = Mul(taken, w)
    above = Greater(kept, w)
    second = NonZero(above)
    minus = Constant<value_ints = [-1]>()
    late = Reshape(second, minus)
    total = ReduceSum<keepdims = 0>(kept)
}
"""
THREE = [(np.arange(4, dtype=np.float32), np.array([True, False, True, True]))]
ONE = [(np.arange(5, dtype=np.float32), np.eye(5, dtype=bool)[2])]


def positive(size: int | str = "n") -> Program:
    """Of which elements are positive, and of these, which are above 3: two sizes that data decides, one after the other."""
    imported = import_model(onnx.parser.parse_model(POSITIVE), {"x": (size,), "y": (size,)})
    return Program(imported.module, imported.weights, "positive")


def some_sizes() -> Model:
    """y = x[mask] + [1, 2, 3]: of three elements, or of one; called with three of four, and with one of five."""
    nodes = [helper.make_node("Compress", ["x", "mask"], ["some"]), helper.make_node("Add", ["some", "three"], ["y"])]
    inputs, three = {"x": ["n"], "mask": ["n"]}, np.float32([1, 2, 3])
    made = model(nodes, inputs, ["y"], dtypes={"mask": TensorProto.BOOL}, weights={"three": three})
    return called(dlc.compile_model(made, num_threads=1), [*THREE, *ONE])


def called(compiled: Model, calls: Sequence[Sequence[Any]]) -> Model:
    for inputs in calls:
        compiled(*inputs)
    return compiled
