"""ONNX's `Gradient`: derivatives of tensors in the enclosing graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import dlc
from dlc.errors import ModelError, UnsupportedError
from dlc.frontend.onnx import import_model
from dlc.frontend.onnx.operators.training import DOMAIN
from tests.frontend.onnx.build import INT64, model, run

X = np.array([[0.5, -1.5], [2.0, 0.25]], np.float32)
W = np.array([[1.0, 2.0], [-0.5, 0.75]], np.float32)


def gradient(inputs: Sequence[str], outputs: Sequence[str], **names: Any) -> Any:
    return helper.make_node("Gradient", inputs, outputs, domain=DOMAIN, **names)


def of(nodes: Sequence[Any], inputs: Mapping[str, Sequence[int]], outputs: Sequence[str], **more: Any) -> ModelProto:
    made = model(nodes, inputs, outputs, **more)
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


def results(nodes: Sequence[Any], feeds: Mapping[str, Any], outputs: Sequence[str], **more: Any) -> list[np.ndarray]:
    made = run(import_model(of(nodes, {name: x.shape for name, x in feeds.items()}, outputs, **more)), feeds)
    return [made[name] for name in outputs]


MOMENTUM: dict[str, Any] = {"alpha": 0.9, "beta": 1.0, "norm_coefficient": 0.0, "mode": "standard"}
PRODUCT = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["h"])]
LOSS = [*PRODUCT, helper.make_node("Mul", ["h", "h"], ["s"]), helper.make_node("ReduceSum", ["s"], ["o"], keepdims=0)]


def test_gradients_of_inputs_and_weights() -> None:
    h = np.tanh(X @ W)
    rate = 2 * h * (1 - h * h)
    gx, gw = results(
        [*LOSS, gradient(["x", "w"], ["gx", "gw"], xs=["x", "w"], y="o")], {"x": X}, ["gx", "gw"], weights={"w": W}
    )
    np.testing.assert_allclose(gx, rate @ W.T, rtol=1e-5)
    np.testing.assert_allclose(gw, X.T @ rate, rtol=1e-5)


@pytest.mark.parametrize("is_bool", [True, False])
def test_masked_query_of_attention_has_no_gradient(is_bool: bool) -> None:
    """The gradients are those of the other queries."""

    def gradients(q: np.ndarray, attends: np.ndarray) -> list[np.ndarray]:
        mask = attends if is_bool else np.where(attends, 0, -np.inf).astype(np.float32)
        nodes = [
            helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"]),
            helper.make_node("Mul", ["y", "y"], ["s"]),
            gradient(["q", "k", "v"], ["gq", "gk", "gv"], xs=["q", "k", "v"], y="s"),
        ]
        feeds = {"q": q, "k": k, "v": v, "mask": mask}
        dtypes = {"mask": TensorProto.BOOL if is_bool else TensorProto.FLOAT}
        return results(nodes, feeds, ["gq", "gk", "gv"], opset=23, dtypes=dtypes)

    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 3, 4), np.float32)
    attends = np.array([[False, False, False], [False, True, True], [True, True, True]])
    (gq, gk, gv), (others, *expected) = gradients(q, attends), gradients(q[:, :, 1:], attends[1:])
    for got, right in zip((gq, gk, gv), (np.pad(others, ((0, 0), (0, 0), (1, 0), (0, 0))), *expected), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


def test_nodes_in_any_order() -> None:
    (found,) = results([gradient(["x"], ["g"], xs=["x"], y="s"), helper.make_node("Mul", ["x", "x"], ["s"])], {"x": X}, ["g"])
    np.testing.assert_allclose(found, 2 * X)


def test_gradient_of_an_intermediate_tensor_at_another_value() -> None:
    """Values that depend on no input of the gradient are captured."""
    nodes = [*LOSS, gradient(["v"], ["g"], xs=["h"], y="o")]
    (found,) = results(nodes, {"x": X, "v": W}, ["g"], weights={"w": W})
    np.testing.assert_allclose(found, 2 * W, rtol=1e-6)


def test_second_derivatives() -> None:
    """d²/dx² and d²/dxdz of x³·z, with an omitted output."""
    cube = [helper.make_node("Mul", ["x", "x"], ["q"]), helper.make_node("Mul", ["q", "x"], ["c"])]
    first = gradient(["x", "z"], ["g"], xs=["x"], zs=["z"], y="y")
    nodes = [*cube, helper.make_node("Mul", ["c", "z"], ["y"]), first]
    second = gradient(["x", "z"], ["gg", "gz"], xs=["x", "z"], y="g")
    third = gradient(["x", "z"], ["", "again"], xs=["x", "z"], y="g")
    found = results([*nodes, second, third], {"x": X, "z": W}, ["g", "gg", "gz", "again"])
    for a, b in zip(found, [3 * X * X * W, 6 * X * W, 3 * X * X, 3 * X * X], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_gradient_through_a_branch() -> None:
    """The branches capture outer names."""

    def branch(kind: str) -> Any:
        node = helper.make_node(kind, ["x", "x"], [f"{kind}_out"])
        return helper.make_graph([node], kind, [], [helper.make_tensor_value_info(f"{kind}_out", 1, [2, 2])])

    choice = helper.make_node("If", ["b"], ["y"], then_branch=branch("Mul"), else_branch=branch("Add"))
    nodes = [helper.make_node("Cast", ["k"], ["b"], to=9), choice, gradient(["x"], ["g"], xs=["x"], y="y")]
    for k, expected in ((1, 2 * X), (0, np.full((2, 2), 2))):
        (found,) = results(nodes, {"x": X, "k": np.int64(k)}, ["g"], dtypes={"k": INT64})
        np.testing.assert_allclose(found, expected)


def test_gradient_of_an_independent_tensor() -> None:
    (found,) = results([*LOSS, gradient(["z"], ["g"], xs=["z"], y="o")], {"x": X, "z": X}, ["g"], weights={"w": W})
    assert not found.any()


def test_a_training_step_with_a_symbolic_batch(tmp_path: Path) -> None:
    """A loss, its gradient and the optimizer update are one program, which is saved before its first call."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("SoftmaxCrossEntropyLoss", ["z", "classes"], ["loss"]),
        gradient(["w", "x", "classes"], ["gw"], xs=["w"], zs=["x", "classes"], y="loss"),
        helper.make_node("Momentum", ["rate", "count", "w", "gw", "v"], ["next", "velocity"], domain=DOMAIN, **MOMENTUM),
    ]
    shapes: dict[str, Any] = {"x": ["n", 2], "classes": ["n"], "w": [2, 2], "v": [2, 2], "rate": [], "count": []}
    made = of(nodes, shapes, ["next"], dtypes={"classes": INT64, "count": INT64})
    dlc.compile_model(made, num_threads=1).save(tmp_path / "step.dlc")
    step = dlc.load(tmp_path / "step.dlc")
    for x in (X, X[:1], np.concatenate([X, X - 1, X])):
        classes = np.arange(len(x)) % 2
        chosen = np.exp(x @ W) / np.exp(x @ W).sum(1, keepdims=True) - np.eye(2)[classes]
        found = step(x=x, classes=classes, w=W, v=np.zeros_like(W), rate=np.float32(0.5), count=np.int64(0))["next"]
        np.testing.assert_allclose(found, W - 0.5 * x.T @ chosen / len(x), rtol=1e-5)


def test_equal_names_in_different_graphs() -> None:
    """A branch may name its tensor like an outer tensor that is computed from it."""

    def branch(name: str, *nodes: Any) -> Any:
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("g", 1, [2, 2])])

    inner = helper.make_node("Mul", ["a", "a"], ["b"]), gradient(["x"], ["g"], xs=["x"], y="b")
    choice = helper.make_node(
        "If",
        ["c"],
        ["o"],
        then_branch=branch("then", *inner),
        else_branch=branch("else", helper.make_node("Neg", ["x"], ["g"])),
    )
    nodes = [helper.make_node("Add", ["b", "b"], ["a"]), helper.make_node("Cast", ["k"], ["c"], to=9), choice]
    (found,) = results(nodes, {"x": X, "b": W, "k": np.int64(1)}, ["o"], dtypes={"k": INT64})
    assert not found.any()


MISTAKES = {
    "counts": (gradient(["x"], ["g"], xs=["x", "w"], y="o"), ModelError, "1 inputs for 2 names in xs and 0 in zs"),
    "unknown": (gradient(["x"], ["g"], xs=["x"], y="nothing"), ModelError, "reads 'nothing', which nothing produces"),
    "itself": (gradient(["x"], ["g"], xs=["x"], y="g"), ModelError, "depends on itself"),
    "integers": (gradient(["k"], ["g"], xs=["k"], y="o"), UnsupportedError, "'k' in xs is .*i64.*not differentiable"),
    "of integers": (
        gradient(["x"], ["g"], xs=["x"], y="sum"),
        UnsupportedError,
        "'sum' is of i64, which is not differentiable",
    ),
    "random": (gradient(["x"], ["g"], xs=["x"], y="drawn"), UnsupportedError, "same values each time"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    node, error, message = MISTAKES[name]
    more = [
        helper.make_node("Add", ["k", "k"], ["sum"]),
        helper.make_node("RandomNormalLike", ["x"], ["noise"]),
        helper.make_node("Mul", ["x", "noise"], ["drawn"]),
    ]
    made = of([*LOSS, *more, node], {"x": [2, 2], "k": []}, ["g"], weights={"w": W}, dtypes={"k": INT64})
    with pytest.raises(error, match=message):
        import_model(made)
