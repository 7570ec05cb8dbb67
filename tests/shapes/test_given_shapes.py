"""Input shapes in the formats that users write."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import TensorProto, helper

import dlc
from dlc.errors import DlcError, DTypeError, ShapeError


@pytest.fixture(scope="module")
def model() -> Any:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch size", "seq", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        (None, "batch_size, seq, 8"),
        ({"x": (2, None, 8)}, "2, seq, 8"),
        ({"x": [np.int64(2), None, None]}, "2, seq, 8"),
        ({"batch size": 3}, "3, seq, 8"),
        ({"batch size": 3, "seq": np.int32(4)}, "3, 4, 8"),
        ({"seq": 5, "x": (2, None, None)}, "2, 5, 8"),
        ({"seq": "1..32"}, "batch_size, seq, 8"),
        ({"seq": "L:1..32"}, "batch_size, L, 8"),
        ({"x": ("N:1..4", None, 8)}, "N, seq, 8"),
    ],
)
def test_shapes_by_input_and_sizes_by_symbol(model: Any, given: Any, shape: str) -> None:
    compiled = dlc.compile_model(model, input_shapes=given, target="reference")
    assert str(compiled.inputs[0]) == f"x: float32[{shape}]"


def test_a_range_by_symbol_is_enforced(model: Any) -> None:
    compiled = dlc.compile_model(model, input_shapes={"batch size": 1, "seq": "1..4"})
    assert compiled(np.ones((1, 4, 8), np.float32))["y"].shape == (1, 4, 8)
    with pytest.raises(ShapeError, match=r"seq = 5"):
        compiled(np.ones((1, 5, 8), np.float32))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({3: (1,)}, "expected the name of an input, got 3"),
        ({"x": None}, "expected the shape of a tensor, got None"),
        ({"x": [(2, 3), (8,)]}, "expected the shape of a tensor"),
        ({"x": (1.5, 2, 8)}, "is not a shape"),
        ({"x": (True, 2, 8)}, "is not a shape"),
        ({"x": (-1, 2, 8)}, "is not a shape"),
        ({"x": (object(),)}, "is not a shape"),
        ({"x": 3}, "expected shape"),
        ({"x": (2, 3)}, "expected shape"),
        ({"x": (2, None, 9)}, "expected size 8, got 9"),
        ({"y": 2}, "no input 'y'.* nor a symbolic dimension of this name: batch_size, seq"),
        ({"seq": (1, 2)}, "expected one integer, got \\(1, 2\\)"),
        ({"seq": "9..1"}, "contains no size"),
    ],
)
def test_invalid_shapes_are_refused(model: Any, given: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        dlc.compile_model(model, input_shapes=given)


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True, 8193, 10**30])
def test_invalid_num_threads_is_refused(model: Any, number: Any, tmp_path: Path) -> None:
    dlc.compile_model(model).save(tmp_path / "m.dlc")
    for read, source in ((dlc.compile_model, model), (dlc.load, tmp_path / "m.dlc")):
        with pytest.raises(DlcError, match=r"num_threads.*expected an integer"):
            read(source, num_threads=number)


def test_input_shapes_that_are_no_dict_are_refused(model: Any) -> None:
    with pytest.raises(DTypeError, match=r"input_shapes = \[1\]; expected a dict or None"):
        dlc.compile_model(model, input_shapes=cast(Any, [1]))
