"""Shapes of inputs as people give them."""

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
def test_sizes_by_input_and_by_name(model: Any, given: Any, shape: str) -> None:
    compiled = dlc.compile_model(model, input_shapes=given, target="reference")
    assert str(compiled.inputs[0]) == f"x: float32[{shape}]"


def test_a_range_given_by_name_is_held(model: Any) -> None:
    compiled = dlc.compile_model(model, input_shapes={"batch size": 1, "seq": "1..4"})
    assert compiled(np.ones((1, 4, 8), np.float32))["y"].shape == (1, 4, 8)
    with pytest.raises(ShapeError, match=r"seq = 5"):
        compiled(np.ones((1, 5, 8), np.float32))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({3: (1,)}, "expected the name of an input, got 3"),
        ({"x": None}, "None is no shape of a tensor"),
        ({"x": [(2, 3), (8,)]}, "is no shape of a tensor"),
        ({"x": (1.5, 2, 8)}, "is no shape"),
        ({"x": (True, 2, 8)}, "is no shape"),
        ({"x": (-1, 2, 8)}, "is no shape"),
        ({"x": (object(),)}, "is no shape"),
        ({"x": 3}, "does not fit the model's"),
        ({"x": (2, 3)}, "does not fit the model's"),
        ({"x": (2, None, 9)}, "size 9 given where the model has 8"),
        ({"y": 2}, "no input 'y' .* nor a size of this name for one number: batch_size, seq"),
        ({"seq": (1, 2)}, "no input 'seq'"),
        ({"seq": "9..1"}, "holds no size"),
    ],
)
def test_what_is_no_shape_is_refused(model: Any, given: Any, said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        dlc.compile_model(model, input_shapes=given)


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True, 8193, 10**30])
def test_what_is_no_number_of_threads_is_refused(model: Any, number: Any, tmp_path: Path) -> None:
    dlc.compile_model(model).save(tmp_path / "m.dlc")
    for read, source in ((dlc.compile_model, model), (dlc.load, tmp_path / "m.dlc")):
        with pytest.raises(DlcError, match=r"num_threads.*expected a whole number"):
            read(source, num_threads=number)


def test_what_is_no_dict_of_shapes_is_refused(model: Any) -> None:
    with pytest.raises(DTypeError, match=r"input_shapes = \[1\]; expected a dict or None"):
        dlc.compile_model(model, input_shapes=cast(Any, [1]))
