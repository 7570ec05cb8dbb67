"""What PyTorch computed, computed by rules: each operator on small tensors, an exported network, a step of its training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dlc.arrays import TensorInfo, read_npz
from dlc.backends.reference import evaluate
from dlc.compiler import compile
from dlc.dims import Dim
from dlc.errors import ShapeError, UnsupportedError
from dlc.ir import print_module
from dlc.options import Options
from dlc.pytorch.graph import Graph, Node, Ref
from dlc.pytorch.programs import given, model_of, program_of
from dlc.pytorch.rules import DRAWN, RULES
from tests.pytorch.graphs import ARRAYS, RECORDED, graph_from_json

RECORDS, ALL = json.loads(RECORDED.read_text()), read_npz(ARRAYS)
# What the compiler does with the rules' ops, their own tests show; this shows that it takes graphs of PyTorch.
ON_CPU = ("network",)
# Operators of PyTorch's core that have no rule.
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


def recorded(name: str) -> Graph:
    start = f"{name}/const/"
    constants = {key.removeprefix(start): value for key, value in ALL.items() if key.startswith(start)}
    return graph_from_json(RECORDS["graphs"][name], constants)


def run(name: str, target: str) -> None:
    got = compile(program_of(recorded(name), name), target).run_unchecked(arrays(name, "in"))
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
    assert {op for op in RECORDS["core"] if op not in (*RULES, *DRAWN)} == set(WITHOUT)


def info(name: str, *shape: Any) -> TensorInfo:
    return TensorInfo(name, shape, np.dtype(np.float32))


def graph_of(nodes: Sequence[Node], *shape: Any) -> Graph:
    return Graph([info("x", *shape)], nodes, [Ref(nodes[-1].name)], [info("y", *shape)])


def test_all_operators_without_a_rule_are_told_at_once() -> None:
    nodes = [Node("a", "one", [Ref("x")], {}, "/home/me/net.py", 3, "layers.0"), Node("b", "two", [Ref("a")], {}, "net.py", 4)]
    with pytest.raises(UnsupportedError, match=r"Net.*\n  one: layers.0 \(net.py:3\)\n  two: net.py:4\n"):
        program_of(graph_of(nodes, 2), "Net")


def test_errors_name_the_line_of_the_module() -> None:
    with pytest.raises(ShapeError, match=r"^net.py:5: reshape: 4 elements"):
        program_of(graph_of([Node("y", "view", [Ref("x"), [3]], {}, "/home/me/net.py", 5)], 2, 2), "Net")
    with pytest.raises(UnsupportedError, match=r"net.py:5\): relu: .*'inplace'"):
        program_of(graph_of([Node("y", "relu", [Ref("x")], {"inplace": True}, "net.py", 5, "act")], 2, 2), "Net")


def test_ops_have_the_line_of_the_module() -> None:
    program = program_of(graph_of([Node("y", "relu", [Ref("x")], {}, "/home/me/net.py", 5)], 2), "Net")
    assert 'dl.relu %x : (tensor<2xf32>) -> tensor<2xf32> loc("/home/me/net.py":5:0)' in print_module(program.module)


def test_open_sizes_are_compiled_once() -> None:
    n = Dim.symbol("n")
    nodes = [
        Node("size", "sym_size.int", [Ref("x"), 0]),
        Node("twice", "operator.mul", [Ref("size"), 2]),
        Node("flat", "view", [Ref("x"), [Ref("twice")]]),
        Node("places", "arange", [Ref("twice")], {"dtype": np.dtype(np.float32)}),
        Node("y", "add.Tensor", [Ref("flat"), Ref("places")]),
    ]
    model = model_of(graph_of(nodes, n, 2), "Net", "cpu", Options())
    for size in (1, 5):
        x = np.ones((size, 2), np.float32)
        np.testing.assert_array_equal(model.run_fitting([x])[0], 1 + np.arange(2 * size))


def test_triangles_and_the_first_of_open_sizes() -> None:
    """A causal mask, and the largest two along an open axis."""
    n = Dim.symbol("n")
    nodes = [
        Node("lower", "tril", [Ref("x")], {"diagonal": -1}),
        Node("best", "topk", [Ref("lower"), 2]),
        Node("y", "operator.getitem", [Ref("best"), 0]),
    ]
    program = program_of(graph_of(nodes, n, n), "Net")
    for size in (2, 5):
        x = np.arange(1, size * size + 1, dtype=np.float32).reshape(size, size)
        (found,) = evaluate(program.with_sizes({"n": size}).module, [x], program.weights)
        np.testing.assert_array_equal(found, -np.sort(-np.tril(x, -1), 1)[:, :2])


def test_what_is_read_for_known_sizes_alone_is_compiled_for_each() -> None:
    nodes = [Node("parts", "unbind.int", [Ref("x"), 0]), Node("y", "operator.getitem", [Ref("parts"), 1])]
    model = model_of(graph_of(nodes, Dim.symbol("n"), 2), "Net", "reference", Options())
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(model.run_unchecked([x])[0], x[1])
    np.testing.assert_array_equal(model.run_unchecked([x[1:]])[0], x[2])


def test_shapes_are_given_as_to_other_models() -> None:
    graph = graph_of([Node("y", "relu", [Ref("x")])], Dim.symbol("n"), 2)
    assert given(graph, {"x": (3, None)}).inputs[0].shape == (3, 2)
    assert given(graph, {"n": (3,)}).inputs[0].shape == (3, 2)
    assert str(given(graph, {"x": ("N:1..4", 2)}).inputs[0].shape[0]) == "N"
    for wrong in ({"x": (3, 4)}, {"x": (3,)}, {"y": (3,)}):
        with pytest.raises(ShapeError, match="input_shapes"):
            given(graph, wrong)


def test_random_numbers_hang_on_the_seed_and_the_node() -> None:
    nodes = [
        Node("a", "rand_like", [Ref("x")]),
        Node("b", "rand_like", [Ref("x")]),
        Node("y", "sub.Tensor", [Ref("a"), Ref("b")]),
    ]
    model = compile(program_of(graph_of(nodes, 50), "Net"), "reference")
    x = np.zeros(50, np.float32)
    first, again, other = (model(x=x, seed=np.asarray(seed))["y"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any() and (first != 0).all()
