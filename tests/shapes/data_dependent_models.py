"""Models with data-dependent sizes, which several tests and the fuzzers use."""

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
    """Return a program with two data-dependent sizes, the second depending on the first.

    It selects the positive elements, and those of them that are above 3.
    """
    imported = import_model(onnx.parser.parse_model(POSITIVE), {"x": (size,), "y": (size,)})
    return Program(imported.module, imported.weights, "positive")


def some_sizes() -> Model:
    """Return a model of y = x[mask] + [1, 2, 3], called with masks that select three of four elements and one of five."""
    nodes = [helper.make_node("Compress", ["x", "mask"], ["some"]), helper.make_node("Add", ["some", "three"], ["y"])]
    inputs, three = {"x": ["n"], "mask": ["n"]}, np.float32([1, 2, 3])
    made = model(nodes, inputs, ["y"], dtypes={"mask": TensorProto.BOOL}, weights={"three": three})
    return called(dlc.compile_model(made, num_threads=1), [*THREE, *ONE])


def called(compiled: Model, calls: Sequence[Sequence[Any]]) -> Model:
    for inputs in calls:
        compiled(*inputs)
    return compiled
