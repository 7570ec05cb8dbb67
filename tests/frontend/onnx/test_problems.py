"""Unsupported features are reported all at once, by node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from dlc.errors import ModelError, UnsupportedError
from dlc.frontend.emitter import MAX_FOLDED_ELEMENTS
from dlc.frontend.onnx import check_model, definitions, import_model
from dlc.frontend.problems import ADVICE_BY_KIND, Problem
from tests.frontend.onnx.build import INT64, model


def kinds(source: ModelProto) -> list[tuple[str, str]]:
    """Return the problems as (node, kind), after a check that import_model reports the same."""
    problems = [p for p in check_model(source) if not p.needs_specialization]
    with pytest.raises(UnsupportedError) as caught:
        import_model(source)
    assert caught.value.problems == [str(p) for p in problems]
    assert all(str(p) in str(caught.value) for p in problems)
    return [(", in it ".join(p.description.split("'")[1::2]) or p.description, p.kind) for p in problems]


def test_a_supported_model_has_no_problems() -> None:
    assert check_model(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"])) == []


def test_all_problems_in_one_message() -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="unknown"),
        helper.make_node("Fused", ["x"], ["b"], name="foreign", domain="com.example"),
        helper.make_node("Relu", ["x"], ["c"], name="odd", slope=0.5),
        helper.make_node("Cast", ["x"], ["d"], name="to_complex", to=TensorProto.COMPLEX64),
        helper.make_node("Gelu", ["x"], ["e"], name="early"),
        helper.make_node("Relu", ["x"], ["f", "mask"], name="extra"),
        helper.make_node("Reshape", ["x", "s"], ["g"], name="shaped_by_data"),
        helper.make_node("Resize", ["x", "", "two"], ["i"], name="zoom", mode="nearest", nearest_mode="random"),
        helper.make_node("Add", ["x", "k"], ["j"], name="mixed"),
    ]
    found = kinds(
        model(
            nodes,
            {"x": [1, 1, 4, 4], "s": [MAX_FOLDED_ELEMENTS + 1]},
            ["a", "b", "c"],
            dtypes={"s": INT64},
            weights={"two": np.float32([1, 1, 2, 2]), "k": np.int64([1])},
            opset=19,
        )
    )
    assert found == [
        ("unknown", "operator"), ("foreign", "operator"), ("odd", "attribute"), ("to_complex", "dtype"), ("early", "opset"),
        ("extra", "output"), ("shaped_by_data", "value"), ("zoom", "attribute"), ("mixed", "dtype"),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", ["", "m"])
def test_a_loop_that_captures_an_unsupported_value_is_not_reported(limit: str) -> None:
    nodes = [helper.make_node("Add", ["s", "a"], ["next"]), helper.make_node("Not", ["c"], ["on"])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("i", "c", "s")]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("on", "next")]
    body = helper.make_graph(nodes, "body", infos, outputs)
    loop = helper.make_node("Loop", [limit, "yes", "x"], ["y"], body=body)
    unknown = helper.make_node("Frobnicate", ["x"], ["a"], name="unknown")
    source = model([unknown, loop], {"x": [3], "m": []}, ["y"], dtypes={"m": INT64}, weights={"yes": np.bool_(True)})
    assert kinds(source) == [("unknown", "operator")]


def test_nodes_after_a_problem_are_checked() -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="unknown"),
        helper.make_node("Softmax", ["a"], ["b"], name="typed", temperature=2.0),
        helper.make_node("Defrobnicate", ["b"], ["c"], name="untyped"),
        helper.make_node("Neg", ["c"], ["d"], name="fine"),
        helper.make_node("Refrobnicate", ["d"], ["y"], name="last"),
    ]
    source = model(nodes, {"x": [2, 2]}, ["y"])
    # The file declares the type of 'a'.
    source.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 2]))
    assert kinds(source) == [
        ("unknown", "operator"), ("typed", "attribute"), ("untyped", "operator"), ("last", "operator"),
    ]  # fmt: skip


def test_branches_are_checked() -> None:
    branch = helper.make_graph(
        [helper.make_node("Frobnicate", ["x"], ["z"], name="inside")],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])],
    )
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch, else_branch=branch)
    found = kinds(model([node], {"x": [1], "c": []}, ["y"], dtypes={"c": TensorProto.BOOL}))
    assert set(found) == {("choice, in it inside", "operator")}


def test_subgraphs_of_unsupported_nodes_are_checked() -> None:
    inside = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["z"], name="inside")], "body", [], [])
    found = kinds(model([helper.make_node("Repeat", ["x"], ["y"], name="unknown", body=inside)], {"x": [1]}, ["y"]))
    assert set(found) == {("unknown", "operator"), ("inside", "operator")}


def test_dtypes_of_inputs_and_initializers() -> None:
    node = helper.make_node("Identity", ["x"], ["y"], name="same")
    source = model([node], {"x": [1]}, ["y"], dtypes={"x": TensorProto.COMPLEX128})
    source.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.COMPLEX64, dims=[1], raw_data=bytes(8)))
    assert kinds(source) == [("w", "dtype"), ("x", "dtype")]


def test_an_old_opset_is_fine_where_nothing_changed() -> None:
    old, same = (model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"], opset=opset) for opset in (5, 6))
    assert kinds(old) == [("model", "opset")]
    assert check_model(same) == []


def test_a_newer_opset_is_fine_where_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "LAST_OPSET", 23)
    assert check_model(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"], opset=24)) == []
    reshape = model([helper.make_node("Reshape", ["x", "s"], ["y"], name="r")], {"x": [1]}, ["y"], weights={"s": [1]}, opset=24)
    assert kinds(reshape) == [("r", "opset")]


def test_unknown_rank() -> None:
    source = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"])
    source.graph.input[0].type.tensor_type.ClearField("shape")
    assert kinds(source) == [("x", "value")]
    assert check_model(source, {"x": (2, 3)}) == []


def test_the_text_of_a_problem() -> None:
    problem = Problem("node 'a' (Relu)", "attribute", "'slope' is not supported")
    assert str(problem) == "node 'a' (Relu): attribute: 'slope' is not supported"


def test_contradicting_shapes_are_listed_with_the_rest() -> None:
    """Five kinds of problems, a contradiction first: all are reported, each with advice."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Frobnicate", ["x"], ["b"], name="unknown"),
        helper.make_node("Conv", ["image", "k"], ["c"], name="conv", auto_pad="SIDEWAYS"),
        helper.make_node("Cast", ["x"], ["d"], name="to_complex", to=TensorProto.COMPLEX64),
        helper.make_node("Gelu", ["x"], ["e"], name="early"),
        helper.make_node("Fused", ["x"], ["f"], name="foreign", domain="com.example"),
    ]
    source = model(
        nodes,
        {"x": [2, 3], "image": [1, 1, 8, 8]},
        ["a", "b", "c"],
        weights={"w": np.ones((5, 4), np.float32), "k": np.ones((1, 1, 3, 3), np.float32)},
        opset=19,
    )
    assert kinds(source) == [
        ("product", "shape"), ("unknown", "operator"), ("conv", "attribute"), ("to_complex", "dtype"), ("early", "opset"),
        ("foreign", "operator"),
    ]  # fmt: skip
    with pytest.raises(UnsupportedError) as caught:
        import_model(source)
    assert all(f"\n  {kind}: {ADVICE_BY_KIND[kind]}" in str(caught.value) for _, kind in kinds(source))


def test_every_contradiction_is_reported() -> None:
    nodes = [helper.make_node("MatMul", ["x", "x"], [f"y{k}"], name=f"product{k}") for k in range(2)]
    with pytest.raises(ModelError, match=r"'product0' .*\n.*'product1'"):
        import_model(model(nodes, {"x": [2, 3]}, ["y0", "y1"]))
