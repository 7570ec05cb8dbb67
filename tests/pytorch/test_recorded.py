"""Recorded results of PyTorch against the rules: single operators, an exported network, a training step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dlc.arrays import TensorInfo, read_npz
from dlc.backends.reference import evaluate
from dlc.compiler import compile
from dlc.errors import ShapeError, UnsupportedError
from dlc.ir import print_module
from dlc.options import Options
from dlc.pytorch.fx_graph import FxGraph, FxNode, ValueRef
from dlc.pytorch.graph_compilation import build_model, build_program, with_requested_shapes
from dlc.pytorch.rules import RANDOM_RULES, RULES
from dlc.shapes.dims import Dim
from tests.pytorch.graph_json import ARRAYS, RECORDED, graph_from_json

RECORDS, ALL = json.loads(RECORDED.read_text()), read_npz(ARRAYS)
# Compiled on the CPU as well, to show that the compiler accepts PyTorch graphs; ops have their own tests.
ON_CPU = ("network",)
# Core ATen operators without a rule.
WITHOUT = {
    "atan2.out": "graphs change nothing in place",
    "_native_batch_norm_legit": "graphs change nothing in place",
    "resize_": "graphs change nothing in place",
    "sym_is_contiguous": "programs know nothing of how arrays lie",
    "sym_storage_offset": "programs know nothing of where arrays lie",
    "sym_stride.int": "programs know nothing of where arrays lie",
}


def arrays(name: str, kind: str) -> list[Any]:
    found = [key for key in ALL if key.startswith(f"{name}/{kind}")]
    return [ALL[f"{name}/{kind}{k}"] for k in range(len(found))]


def recorded(name: str) -> FxGraph:
    start = f"{name}/const/"
    constants = {key.removeprefix(start): value for key, value in ALL.items() if key.startswith(start)}
    return graph_from_json(RECORDS["graphs"][name], constants)


def run(name: str, target: str) -> None:
    got = compile(build_program(recorded(name), name), target).run_unchecked(arrays(name, "in"))
    for array, wanted in zip(got, arrays(name, "out"), strict=True):
        assert array.dtype == wanted.dtype and array.shape == wanted.shape
        np.testing.assert_allclose(array, wanted, rtol=2e-5, atol=1e-5 * max(1.0, float(np.abs(wanted).max(initial=0))))


@pytest.mark.parametrize("name", [name for name in RECORDS["graphs"] if name not in ON_CPU])
def test_op(name: str) -> None:
    run(name, "reference")


@pytest.mark.parametrize("name", ON_CPU)
def test_program(name: str) -> None:
    run(name, "cpu")


def test_core_operators_without_a_rule_are_listed() -> None:
    assert {op for op in RECORDS["core"] if op not in (*RULES, *RANDOM_RULES)} == set(WITHOUT)


def info(name: str, *shape: Any) -> TensorInfo:
    return TensorInfo(name, shape, np.dtype(np.float32))


def graph_of(nodes: Sequence[FxNode], *shape: Any) -> FxGraph:
    return FxGraph([info("x", *shape)], nodes, [ValueRef(nodes[-1].name)], [info("y", *shape)])


def test_all_unsupported_operators_are_reported() -> None:
    nodes = [
        FxNode("a", "one", [ValueRef("x")], {}, "/home/me/net.py", 3, "layers.0"),
        FxNode("b", "two", [ValueRef("a")], {}, "net.py", 4),
    ]
    with pytest.raises(UnsupportedError, match=r"Net.*\n  one: layers.0 \(net.py:3\)\n  two: net.py:4\n"):
        build_program(graph_of(nodes, 2), "Net")


def test_errors_name_the_line_of_the_module() -> None:
    with pytest.raises(ShapeError, match=r"^net.py:5: reshape: 4 elements"):
        build_program(graph_of([FxNode("y", "view", [ValueRef("x"), [3]], {}, "/home/me/net.py", 5)], 2, 2), "Net")
    with pytest.raises(UnsupportedError, match=r"net.py:5\): relu: .*'inplace'"):
        build_program(graph_of([FxNode("y", "relu", [ValueRef("x")], {"inplace": True}, "net.py", 5, "act")], 2, 2), "Net")


def test_ops_have_the_line_of_the_module() -> None:
    program = build_program(graph_of([FxNode("y", "relu", [ValueRef("x")], {}, "/home/me/net.py", 5)], 2), "Net")
    assert 'dl.relu %x : (tensor<2xf32>) -> tensor<2xf32> loc("/home/me/net.py":5:0)' in print_module(program.module)


def test_symbolic_sizes_are_compiled_once() -> None:
    n = Dim.symbol("n")
    nodes = [
        FxNode("size", "sym_size.int", [ValueRef("x"), 0]),
        FxNode("twice", "operator.mul", [ValueRef("size"), 2]),
        FxNode("flat", "view", [ValueRef("x"), [ValueRef("twice")]]),
        FxNode("places", "arange", [ValueRef("twice")], {"dtype": np.dtype(np.float32)}),
        FxNode("y", "add.Tensor", [ValueRef("flat"), ValueRef("places")]),
    ]
    model = build_model(graph_of(nodes, n, 2), "Net", "cpu", Options())
    for size in (1, 5):
        x = np.ones((size, 2), np.float32)
        np.testing.assert_array_equal(model.check_and_run([x])[0], 1 + np.arange(2 * size))


def test_tril_and_topk_of_symbolic_sizes() -> None:
    """A causal mask, and the two largest elements along a symbolic axis."""
    n = Dim.symbol("n")
    nodes = [
        FxNode("lower", "tril", [ValueRef("x")], {"diagonal": -1}),
        FxNode("best", "topk", [ValueRef("lower"), 2]),
        FxNode("y", "operator.getitem", [ValueRef("best"), 0]),
    ]
    program = build_program(graph_of(nodes, n, n), "Net")
    for size in (2, 5):
        x = np.arange(1, size * size + 1, dtype=np.float32).reshape(size, size)
        (found,) = evaluate(program.with_sizes({"n": size}).module, [x], program.weights)
        np.testing.assert_array_equal(found, -np.sort(-np.tril(x, -1), 1)[:, :2])


def test_specialization_per_static_size() -> None:
    nodes = [FxNode("parts", "unbind.int", [ValueRef("x"), 0]), FxNode("y", "operator.getitem", [ValueRef("parts"), 1])]
    model = build_model(graph_of(nodes, Dim.symbol("n"), 2), "Net", "reference", Options())
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(model.run_unchecked([x])[0], x[1])
    np.testing.assert_array_equal(model.run_unchecked([x[1:]])[0], x[2])


def test_requested_shapes() -> None:
    graph = graph_of([FxNode("y", "relu", [ValueRef("x")])], Dim.symbol("n"), 2)
    assert with_requested_shapes(graph, {"x": (3, None)}).inputs[0].shape == (3, 2)
    assert with_requested_shapes(graph, {"n": (3,)}).inputs[0].shape == (3, 2)
    assert str(with_requested_shapes(graph, {"x": ("N:1..4", 2)}).inputs[0].shape[0]) == "N"
    for wrong in ({"x": (3, 4)}, {"x": (3,)}, {"y": (3,)}):
        with pytest.raises(ShapeError, match=r"input '[xy]'"):
            with_requested_shapes(graph, wrong)


def test_random_values_depend_on_seed_and_node() -> None:
    nodes = [
        FxNode("a", "rand_like", [ValueRef("x")]),
        FxNode("b", "rand_like", [ValueRef("x")]),
        FxNode("y", "sub.Tensor", [ValueRef("a"), ValueRef("b")]),
    ]
    model = compile(build_program(graph_of(nodes, 50), "Net"), "reference")
    x = np.zeros(50, np.float32)
    first, again, other = (model(x=x, seed=np.asarray(seed))["y"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any() and (first != 0).all()
