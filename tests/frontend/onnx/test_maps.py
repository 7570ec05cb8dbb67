"""Maps as inputs and outputs of a model: Python dicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import dlc
from dlc.errors import DlcError, DTypeError, ModelError, UnsupportedError

TEXT, FLOAT, INT64 = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64


def model(nodes: Sequence[Any], key: int, value: int, output: int = FLOAT) -> ModelProto:
    """Build a model with one map input, `m`."""
    of = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, None))
    outputs = [helper.make_tensor_value_info("y", output, None)]
    graph = helper.make_graph(list(nodes), "test", [helper.make_value_info("m", of)], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)])


def ml(kind: str, **attributes: Any) -> Any:
    return helper.make_node(kind, ["m"], ["y"], domain="ai.onnx.ml", **attributes)


def test_dict_vectorizer(tmp_path: Path) -> None:
    """One saved program for any number of entries; keys outside of the vocabulary are dropped."""
    compiled = dlc.compile_model(model([ml("DictVectorizer", string_vocabulary=["tea", "milk", "jam"])], TEXT, FLOAT))
    assert str(compiled.inputs[0]) == "m: dict of string to float32"
    compiled.save(tmp_path / "m.dlc")
    for each in (compiled, dlc.load(tmp_path / "m.dlc")):
        for given in ({"milk": 0.5, "ink": 7, "tea": np.float32(2)}, {}, {"jam": -1.0}):
            np.testing.assert_array_equal(each(m=given)["y"], [[given.get(word, 0) for word in ("tea", "milk", "jam")]])


CASES: dict[str, tuple[Any, tuple[int, int, int], dict[Any, Any], Any]] = {
    "integers": (ml("DictVectorizer", int64_vocabulary=[7, -2]), (INT64, FLOAT, FLOAT), {-2: 1.5, 7: 2.0}, [[2.0, 1.5]]),
    "to text": (ml("DictVectorizer", int64_vocabulary=[1, 2]), (INT64, TEXT, TEXT), {2: "b"}, [["", "b"]]),
    "dense": (ml("CastMap"), (INT64, FLOAT, FLOAT), {5: 1.0, -1: 2.0, 3: 3.0}, [[2.0, 3.0, 1.0]]),
    "sparse": (
        ml("CastMap", map_form="SPARSE", max_map=4, cast_to="TO_INT64"),
        (INT64, FLOAT, INT64),
        {2: 7.0, 0: 3.0},
        [[3, 0, 7, 0]],
    ),
    "of text": (ml("CastMap", map_form="SPARSE", max_map=3), (INT64, TEXT, FLOAT), {1: "2.5"}, [[0, 2.5, 0]]),
    "as text": (ml("CastMap", cast_to="TO_STRING"), (INT64, TEXT, TEXT), {1: "a", 0: "b"}, [["b", "a"]]),
}


@pytest.mark.parametrize("name", CASES)
def test_cast_map(name: str) -> None:
    node, types, given, expected = CASES[name]
    np.testing.assert_array_equal(dlc.compile_model(model([node], *types), target="reference")(m=given)["y"], expected)


def test_a_map_output() -> None:
    """Entries are in key order."""
    made = model([ml("CastMap")], INT64, FLOAT)
    made.graph.output.append(helper.make_value_info("m", made.graph.input[0].type))
    results = dlc.compile_model(made, target="reference")(m={3: 1.0, 1: 2.0})
    assert list(results["m"].items()) == [(1, 2.0), (3, 1.0)]


def test_mistakes() -> None:
    words = dlc.compile_model(model([ml("DictVectorizer", string_vocabulary=["a"])], TEXT, FLOAT), target="reference")
    with pytest.raises(DTypeError, match=r"input m: expected a dict of string to float32; got 3 among its keys"):
        words(m={3: 1.0})
    with pytest.raises(DTypeError, match=r"got 'x' among its values"):
        words(m={"a": "x"})
    with pytest.raises(DTypeError, match=r"input m: expected dict of string to float32; got an array"):
        words(np.zeros(3, np.float32))
    sparse = dlc.compile_model(model([ml("CastMap", map_form="SPARSE", max_map=2)], INT64, FLOAT), target="reference")
    with pytest.raises(DlcError, match=r"a key is outside a row of size 2"):
        sparse(m={2: 1.0})
    for node, key, error, message in (
        (ml("DictVectorizer", int64_vocabulary=[1]), TEXT, UnsupportedError, "its vocabulary and the keys"),
        (ml("DictVectorizer"), TEXT, ModelError, "it needs one vocabulary"),
        (helper.make_node("Neg", ["m"], ["y"]), INT64, UnsupportedError, "a map is not supported here, only a tensor"),
    ):
        with pytest.raises(error, match=message):
            dlc.compile_model(model([node], key, FLOAT), target="reference")
