"""Sequences and optionals exist during import only; the program has the tensors that they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

from dlc.errors import ModelError, UnsupportedError
from dlc.frontend.onnx import import_model
from dlc.models.api import compile_model
from tests.frontend.onnx.build import model, op_names, run

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def node(op: str, inputs: list[str], output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, [output], **attributes)


def result(*nodes: NodeProto, weights: dict[str, Any] | None = None) -> Any:
    """Return `y` of a model of these nodes with the input X."""
    return run(import_model(model(nodes, {"x": X.shape}, ["y"], weights=weights)), {"x": X})["y"]


@pytest.mark.parametrize("place", [0, 2, -1])
def test_an_element_of_a_split(place: int) -> None:
    nodes = [node("SplitToSequence", ["x"], "s"), node("SequenceAt", ["s", "place"], "y")]
    imported = import_model(model(nodes, {"x": X.shape}, ["y"], weights={"place": np.int64(place)}))
    np.testing.assert_array_equal(run(imported, {"x": X})["y"], X[[place]])
    assert set(op_names(imported)) == {"dl.slice", "func.return"}


@pytest.mark.parametrize(
    ("split", "parts"),
    [(np.int64(3), [X[:3], X[3:]]), (np.int64([1, 0, 3]), [X[:1], X[1:1], X[1:]]), (np.int64([4]), [X])],
)
def test_parts_concatenated_in_another_order(split: Any, parts: list[Any]) -> None:
    count = len(parts)
    nodes = [
        node("SplitToSequence", ["x", "split"], "s"),
        *(node("SequenceAt", ["s", f"{k}"], f"part{k}") for k in range(count)),
        node("SequenceConstruct", [f"part{k}" for k in reversed(range(count))], "turned"),
        node("ConcatFromSequence", ["turned"], "y", axis=0),
    ]
    got = result(*nodes, weights={"split": split, **{f"{k}": np.int64(k) for k in range(count)}})
    np.testing.assert_array_equal(got, np.concatenate(parts[::-1]))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_splits_of_string_tensors(target: str) -> None:
    nodes = [
        node("SplitToSequence", ["x"], "s", keepdims=0),
        node("SequenceAt", ["s", "last"], "t"),
        node("SequenceErase", ["s", "last"], "rest"),
        node("ConcatFromSequence", ["rest"], "y", axis=0, new_axis=1),
    ]
    made = model(nodes, {"x": [3]}, ["s", "t", "y"], weights={"last": np.int64(-1)}, dtypes={"x": TensorProto.STRING})
    got = compile_model(made, target=target)(["a", "ü", ""])
    assert [part.item() for part in got["s"]] == ["a", "ü", ""]
    assert got["t"].item() == "" and got["y"].tolist() == ["a", "ü"]


def test_a_specified_split_of_a_symbolic_size() -> None:
    nodes = [node("SplitToSequence", ["x", "split"], "s"), node("SequenceAt", ["s", "last"], "y")]
    sizes: dict[str, list[Any]] = {"x": ["n", 3], "split": ["parts"]}
    made = model(nodes, sizes, ["y"], weights={"last": np.int64(-1)}, dtypes={"split": TensorProto.INT64})
    compiled = compile_model(made, target="reference")
    for split in ([1, 3], [2, 1, 1]):
        np.testing.assert_array_equal(compiled(X, np.int64(split))["y"], X[-split[-1] :])


def test_rows_stacked_along_a_new_axis() -> None:
    nodes = [
        node("SplitToSequence", ["x"], "s", axis=0, keepdims=0),
        node("ConcatFromSequence", ["s"], "y", axis=-1, new_axis=1),
    ]
    np.testing.assert_array_equal(result(*nodes), X.T)


def test_insert_and_erase() -> None:
    nodes = [
        node("SequenceEmpty", [], "none"),
        node("Neg", ["x"], "negative"),
        node("Exp", ["x"], "other"),
        node("SequenceInsert", ["none", "x"], "one"),
        node("SequenceInsert", ["one", "negative"], "two"),
        node("SequenceInsert", ["two", "other", "first"], "three"),
        node("SequenceErase", ["three", "first"], "again"),
        node("ConcatFromSequence", ["again"], "joined", axis=0),
        node("SequenceErase", ["again"], "last"),
        node("SequenceLength", ["again"], "count"),
        node("Cast", ["count"], "number", to=TensorProto.FLOAT),
        node("Mul", ["joined", "number"], "y"),
    ]
    np.testing.assert_array_equal(result(*nodes, weights={"first": np.int64(0)}), 2 * np.concatenate([X, -X]))


def test_sequence_map() -> None:
    body = helper.make_graph(
        [node("Add", ["row", "all"], "sum")],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("row", "all")],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, None)],
    )
    nodes = [
        node("SplitToSequence", ["x"], "s"),
        node("SequenceMap", ["s", "x"], "mapped", body=body),
        node("ConcatFromSequence", ["mapped"], "y", axis=0),
    ]
    np.testing.assert_array_equal(result(*nodes), np.concatenate([row + X for row in X[:, None]]))


def test_a_branch_that_returns_a_sequence() -> None:
    def branch(*names: str) -> Any:
        inner = node("SequenceConstruct", list(names), "pair")
        sequence = helper.make_tensor_sequence_value_info("pair", TensorProto.FLOAT, None)
        return helper.make_graph([inner], "branch", [], [sequence])

    nodes = [
        node("Neg", ["x"], "negative"),
        node("If", ["yes"], "s", then_branch=branch("negative", "x"), else_branch=branch("x")),
        node("ConcatFromSequence", ["s"], "y", axis=0),
    ]
    np.testing.assert_array_equal(result(*nodes, weights={"yes": np.bool_(True)}), np.concatenate([-X, X]))


def test_optionals() -> None:
    nodes = [
        node("Optional", ["x"], "given"),
        node("OptionalHasElement", ["given"], "has"),
        node("OptionalGetElement", ["given"], "value"),
        node("Optional", [], "nothing", type=helper.make_tensor_type_proto(TensorProto.FLOAT, None)),
        node("OptionalHasElement", ["nothing"], "lacks"),
        node("Neg", ["x"], "negative"),
        node("Where", ["lacks", "x", "negative"], "chosen"),
        node("Where", ["has", "value", "chosen"], "same"),
        node("Add", ["same", "chosen"], "y"),
    ]
    np.testing.assert_array_equal(result(*nodes), X - X)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("SequenceAt", ["x", "two"], "y")], "'y' .*input 0 is not a sequence"),
        (
            [node("SequenceConstruct", ["x"], "s"), node("SequenceAt", ["s", "two"], "y")],
            "position 2 is outside a sequence of 1",
        ),
        ([node("SequenceEmpty", [], "s"), node("ConcatFromSequence", ["s"], "y", axis=0)], "its sequence is empty"),
        ([node("Optional", [], "o"), node("OptionalGetElement", ["o"], "y")], "its optional has no value"),
    ],
)
def test_mismatched_inputs(nodes: list[NodeProto], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        result(*nodes, weights={"two": np.int64(2)})


def test_a_tensor_operator_rejects_sequences() -> None:
    with pytest.raises(UnsupportedError, match=r"'y' .*a sequence is not supported here"):
        result(node("SequenceConstruct", ["x"], "s"), node("Neg", ["s"], "y"))


def test_sequence_and_optional_outputs() -> None:
    nodes = [node("Neg", ["x"], "z"), node("SequenceConstruct", ["x", "z"], "s"), node("Optional", [], "none")]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    outputs = compile_model(model(nodes, {"x": x.shape}, ["s", "none"]), target="reference")(x)
    np.testing.assert_array_equal(outputs["s"], [x, -x])
    assert outputs["none"] is None
