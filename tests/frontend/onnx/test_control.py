"""If, Loop and Scan: constant folding, run-time conditions, and unsupported forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

import dlc
from dlc.compiler import Program, compile
from dlc.errors import DlcError, ModelError, UnsupportedError
from dlc.frontend.onnx import check_model, import_model
from dlc.options import Options
from tests.frontend.onnx.build import FLOAT, model, op_names, run

X = np.float32([[1, -2], [3, 4], [-5, 6]])


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), name=f"{op}-{outputs[0]}", **attributes)


def graph(
    nodes: Sequence[NodeProto], outputs: Sequence[str], inputs: Sequence[str] = (), weights: Mapping[str, Any] | None = None
) -> GraphProto:
    def info(name: str) -> Any:
        return helper.make_tensor_value_info(name, FLOAT, None)

    tensors = [numpy_helper.from_array(np.asarray(w), n) for n, w in (weights or {}).items()]
    return helper.make_graph(list(nodes), "inner", list(map(info, inputs)), list(map(info, outputs)), tensors)


HALVED = graph([node("Mul", ["x", "half"], ["small"])], ["small"], weights={"half": np.float32(0.5)})
NEGATED = graph([node("Neg", ["x"], ["turned"])], ["turned"])


@pytest.mark.parametrize("taken", [True, False])
def test_the_branch_of_a_known_condition(taken: bool) -> None:
    nodes = [node("If", ["c"], ["y"], then_branch=HALVED, else_branch=NEGATED)]
    imported = import_model(model(nodes, {"x": [3, 2]}, ["y"], weights={"c": np.bool_(taken)}))
    assert ("dl.mul" if taken else "dl.neg") in op_names(imported) and "dl.select" not in op_names(imported)
    np.testing.assert_array_equal(run(imported, {"x": X})["y"], X / 2 if taken else -X)


def test_an_untaken_branch_may_contain_anything() -> None:
    odd = graph([node("Frobnicate", ["x"], ["odd"])], ["odd"])
    nodes = [node("If", ["c"], ["y"], then_branch=HALVED, else_branch=odd)]
    assert not check_model(model(nodes, {"x": [3, 2]}, ["y"], weights={"c": np.bool_(True)}))
    (problem,) = check_model(model(nodes, {"x": [3, 2]}, ["y"], weights={"c": np.bool_(False)}))[:1]
    assert "If-y" in problem.description and "Frobnicate-odd" in problem.description


@pytest.mark.parametrize("taken", [True, False])
def test_a_runtime_condition(taken: bool) -> None:
    nodes = [
        node("ReduceMax", ["x"], ["top"], keepdims=0),
        node("Greater", ["top", "limit"], ["c"]),
        node("If", ["c"], ["y"], then_branch=HALVED, else_branch=NEGATED),
    ]
    imported = import_model(model(nodes, {"x": [3, 2]}, ["y"], weights={"limit": np.float32(5.5)}))
    x = X if taken else -X
    np.testing.assert_array_equal(run(imported, {"x": x})["y"], x / 2 if taken else -x)


def test_branches_of_two_shapes_need_a_known_condition() -> None:
    total = graph([node("ReduceSum", ["x"], ["sum"], keepdims=0)], ["sum"])
    nodes = [node("If", ["c"], ["y"], then_branch=HALVED, else_branch=total)]
    source = model(nodes, {"x": [3, 2], "c": []}, ["y"], dtypes={"c": TensorProto.BOOL})
    with pytest.raises(UnsupportedError, match=r"If-y.*tensor<3x2xf32> in one branch and tensor<f32> in the other"):
        import_model(source)


def looped(count: Any, going: NodeProto, **weights: Any) -> Any:
    """s ← s + x, with scan output i, while `going`."""
    body = graph(
        [
            node("Cast", ["i"], ["number"], to=FLOAT),
            node("Add", ["s", "x"], ["next"]),
            node("Mul", ["x", "number"], ["part"]),
            going,
        ],
        ["on", "next", "part"],
        ["i", "c", "s"],
    )
    nodes = [node("Loop", ["m" if count is not None else "", "yes", "x"], ["last", "parts"], body=body)]
    known = {"yes": np.bool_(True), **({"m": np.int64(count)} if count is not None else {}), **weights}
    return model(nodes, {"x": [3, 2]}, ["last", "parts"], weights=known)


def test_a_loop_of_known_length() -> None:
    got = run(import_model(looped(4, node("Identity", ["c"], ["on"]))), {"x": X})
    np.testing.assert_array_equal(got["last"], 5 * X)
    np.testing.assert_array_equal(got["parts"], np.arange(4, dtype=np.float32)[:, None, None] * X)


def test_a_loop_with_a_known_condition_is_folded() -> None:
    got = run(import_model(looped(None, node("Less", ["number", "two"], ["on"]), two=np.float32(2))), {"x": X})
    np.testing.assert_array_equal(got["last"], 4 * X)
    assert got["parts"].shape == (3, 3, 2)


GROWS = [
    node("Add", ["s", "step"], ["next"]),
    node("ReduceMax", ["next"], ["top"], keepdims=0),
    node("Less", ["top", "limit"], ["on"]),
]


def until(limit: str, **more: Any) -> Any:
    """s ← s + step while its largest element is below the limit."""
    body = graph(GROWS, ["on", "next"], ["i", "c", "s"])
    nodes = [node("Loop", [limit, "yes", "x"], ["last"], body=body)]
    dtypes = {"m": TensorProto.INT64}
    known = {"yes": np.bool_(True), "limit": np.float32(9), "step": np.float32([1, 2])}
    inputs = {"x": [3, 2], **({"m": []} if limit == "m" else {})}
    return model(nodes, inputs, ["last"], weights={**known, **more}, dtypes=dtypes)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(("count", "times"), [(None, 2), (1, 1), (0, 0), (1 << 62, 2)])
def test_a_loop_with_a_runtime_condition(target: str, count: int | None, times: int) -> None:
    imported = import_model(until("" if count is None else "m"))
    model = compile(Program(imported.module, imported.weights), target, Options(num_threads=1, workers=1))
    (got,) = model.run_unchecked([X] if count is None else [X, np.array(count)])
    np.testing.assert_array_equal(np.asarray(got), X + times * np.float32([1, 2]))
    again = model.run_unchecked([X + 20] if count is None else [X + 20, np.array(count)])
    np.testing.assert_array_equal(np.asarray(again[0]), X + 20 + min(times, 1) * np.float32([1, 2]))


def test_scan_outputs_of_a_loop_with_a_runtime_condition() -> None:
    body = graph(GROWS, ["on", "next", "top", "s", "on"], ["i", "c", "s"])
    nodes = [node("Loop", ["m", "more", "x"], ["last", "tops", "before", "went"], body=body)]
    known = {"limit": np.float32(9), "step": np.float32([1, 2]), "m": np.int64(4)}
    outputs = ["last", "tops", "before", "went"]
    imported = import_model(model(nodes, {"x": [3, 2], "more": []}, outputs, weights=known, dtypes={"more": TensorProto.BOOL}))
    compiled = compile(Program(imported.module, imported.weights), "cpu", Options(num_threads=1, workers=1))
    for x, more in ((X, True), (X - 1e3, True), (X, False)):
        last, tops, before, went = map(np.asarray, compiled.run_unchecked([x, np.array(more)]))
        states = [x]
        while more and len(states) <= 4:
            states.append(states[-1] + np.float32([1, 2]))
            more = bool(states[-1].max() < 9)
        made = len(states) - 1
        np.testing.assert_array_equal(last, states[-1])
        np.testing.assert_array_equal(tops, np.float32([s.max() for s in states[1:]]))
        np.testing.assert_array_equal(before, np.reshape(states[:-1], (made, 3, 2)))
        np.testing.assert_array_equal(went, tops < 9)


def test_scan_outputs_of_a_loop_without_iterations_are_empty() -> None:
    body = graph(GROWS, ["on", "next", "top"], ["i", "c", "s"])
    known = {"limit": np.float32(9), "step": np.float32([1, 2]), "m": np.int64(0)}
    nodes = [node("Loop", ["m", "", "x"], ["last", "tops"], body=body)]
    got = run(import_model(model(nodes, {"x": [3, 2]}, ["last", "tops"], weights=known)), {"x": X})
    np.testing.assert_array_equal(got["last"], X)
    assert got["tops"].shape == (0,)


def test_a_loop_without_iterations_may_have_growing_states() -> None:
    nodes = [node("Concat", ["s", "s"], ["next"], axis=0), node("Exp", ["s"], ["row"]), node("Identity", ["c"], ["on"])]
    body = graph(nodes, ["on", "next", "row"], ["i", "c", "s"])
    loop = node("Loop", ["m", "", "x"], ["last", "rows"], body=body)
    got = run(import_model(model([loop], {"x": [3, 2]}, ["last", "rows"], weights={"m": np.int64(0)})), {"x": X})
    np.testing.assert_array_equal(got["last"], X)
    assert (got["rows"].shape, got["rows"].dtype) == ((0, 3, 2), np.float32)


def test_a_loop_body_captures_outer_values() -> None:
    body = graph([node("Add", ["s", "t"], ["next"]), *GROWS[1:]], ["on", "next"], ["i", "c", "s"])
    nodes = [node("Tanh", ["x"], ["t"]), node("Loop", ["", "", "x"], ["last"], body=body)]
    imported = import_model(model(nodes, {"x": [3, 2]}, ["last"], weights={"limit": np.float32(7)}))
    (got,) = compile(Program(imported.module, imported.weights), "cpu", Options(num_threads=1, workers=1)).run_unchecked([X])
    np.testing.assert_allclose(np.asarray(got), X + 2 * np.tanh(X), rtol=1e-6)


def test_a_long_loop_is_not_unrolled() -> None:
    imported = import_model(until("m", m=np.int64(5000)))
    assert op_names(imported).count("dl.while") == 1


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("limit", ["", "m"])
def test_scan_outputs_without_a_trip_count(limit: str, target: str) -> None:
    """The loop runs once before to count its iterations."""
    known = {"yes": np.bool_(True), "limit": np.float32(9), "step": np.float32([1, 2]), "m": np.int64(1 << 40)}
    body = graph(GROWS, ["on", "next", "top"], ["i", "c", "s"])
    source = model(
        [node("Loop", [limit, "yes", "x"], ["last", "tops"], body=body)], {"x": ["n", 2]}, ["last", "tops"], weights=known
    )
    compiled = dlc.compile_model(source, target=target, num_threads=1, cache=False)
    for x in (X, X - 40, X + 20):
        s, tops = x, list[float]()
        while not tops or tops[-1] < 9:
            s = s + np.float32([1, 2])
            tops.append(s.max())
        got = compiled(x)
        np.testing.assert_array_equal(got["last"], s)
        np.testing.assert_array_equal(got["tops"], tops)


def test_unsupported_loops() -> None:
    known = {"yes": np.bool_(True), "limit": np.float32(9)}
    longer = [node("Concat", ["s", "s"], ["next"], axis=0), node("ReduceMax", ["s"], ["top"], keepdims=0)]
    body = graph([*longer, node("Less", ["top", "limit"], ["on"])], ["on", "next"], ["i", "c", "s"])
    with pytest.raises(UnsupportedError, match=r"Loop-last.*its condition is computed from data, and the types of its states"):
        import_model(model([node("Loop", ["", "yes", "x"], ["last"], body=body)], {"x": [3, 2]}, ["last"], weights=known))
    empty = graph([], [], ["i", "c", "s"])
    nodes = [node("Loop", ["", "yes", "x"], ["last"], body=empty)]
    with pytest.raises(ModelError, match="0 results for a condition and 1 states"):
        import_model(model(nodes, {"x": [3, 2]}, ["last"], weights=known))


def scanned(nodes: Sequence[NodeProto], outputs: Sequence[str], **attributes: Any) -> Any:
    body = graph(nodes, outputs, ["s", "row"], weights={"half": np.float32(0.5)})
    scan = node("Scan", ["s0", "x"], ["last", "all"], body=body, num_scan_inputs=1, **attributes)
    return model([scan], {"x": ["n", 2]}, ["last", "all"], weights={"s0": np.zeros(2, np.float32), "bias": np.float32([1, 2])})


SUMS = [node("Mul", ["s", "half"], ["less"]), node("Add", ["less", "row"], ["sum"]), node("Add", ["sum", "bias"], ["next"])]


@pytest.mark.parametrize("backward", [False, True])
def test_a_scan_over_a_symbolic_length(backward: bool) -> None:
    source = scanned(SUMS, ["next", "next"], scan_input_directions=[int(backward)])
    imported = import_model(source, {"x": (3, 2)})
    s, states = np.zeros(2, np.float32), []
    for row in X[::-1] if backward else X:
        s = s * np.float32(0.5) + row + np.float32([1, 2])
        states.append(s)
    got = run(imported, {"x": X})
    np.testing.assert_allclose(got["last"], s)
    np.testing.assert_allclose(got["all"], states)
    assert [str(size) for size in import_model(source).outputs[1].shape] == ["n", "2"]


def test_a_state_must_not_change_its_type() -> None:
    total = [node("ReduceSum", ["row"], ["next"], keepdims=0)]
    with pytest.raises(ModelError, match=r"Scan-last.*tensor<2xf32> to type tensor<f32>"):
        import_model(scanned(total, ["next", "next"]))


def test_scan_outputs_must_have_a_fixed_size() -> None:
    places = [node("NonZero", ["row"], ["places"]), node("Add", ["s", "row"], ["next"])]
    with pytest.raises(UnsupportedError, match=r"Scan-last.*results of its body have data-dependent sizes"):
        import_model(scanned(places, ["next", "places"]))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_data_dependent_sizes_inside_a_scan(target: str) -> None:
    counts = [node("NonZero", ["row"], ["places"]), node("Size", ["places"], ["count"]), node("Add", ["s", "row"], ["next"])]
    imported = import_model(scanned(counts, ["next", "count"]))
    x = np.float32([[0, 1], [0, 0], [3, 4], [0, 5]])
    got = compile(Program(imported.module, imported.weights), target, Options(num_threads=1))(x)
    np.testing.assert_array_equal(got["all"], [1, 0, 2, 1])
    np.testing.assert_array_equal(got["last"], x.sum(0))


# The body captures the initial state.
POWERS = """<ir_version: 9, opset_import: ["" : 20]> g (float[3] x, int64 count) => (float[3] last, float[q,3] all) {
    going = Constant<value = bool {1}>()
    last, all = Loop(count, going, x) <
        body = b (int64 i, bool on, float[3] s) => (bool still, float[3] next, float[3] kept) {
            still = Identity(on)
            next = Mul(s, x)
            kept = Add(next, x)
        }>
}"""


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_loop_body_captures_the_initial_state(target: str) -> None:
    imported = import_model(onnx.parser.parse_model(POWERS))
    powers = compile(Program(imported.module, imported.weights), target, Options(num_threads=1))
    x = np.float32([1, 2, -3])
    for count in (0, 1, 3):
        got = powers(x, np.int64(count))
        np.testing.assert_array_equal(got["last"], x ** (count + 1))
        np.testing.assert_array_equal(got["all"], np.reshape([x ** (k + 2) + x for k in range(count)], (count, 3)))


ROOMS = """<ir_version: 9, opset_import: ["" : 20]> g (float[n] x) => (float[q,2] y, int64[r] z) {
    total = ReduceSum<keepdims = 0>(x)
    zero = Constant<value_float = 0.0>()
    axis = Constant<value_ints = [1]>()
    minus = Constant<value_ints = [-1]>()
    some = Greater(total, zero)
    y, z = If(some) <
        then_branch = a () => (float[q1,2] v, int64[r1] w) {
            places = NonZero(x)
            w = Reshape(places, minus)
            few = Gather(x, w)
            column = Unsqueeze(few, axis)
            v = Concat<axis = 1>(column, column)
        },
        else_branch = b () => (float[q2,2] v, int64[r2] w) {
            v = Constant<value = float[1,2] {5.0, 6.0}>()
            w = Constant<value_ints = [1, 2, 3]>()
        }>
}"""
UNTIL = """<ir_version: 9, opset_import: ["" : 20]> g (float[n] x, int64 most) => (float[n] last, int64[t] counts) {
    going = Constant<value_int = 1>()
    go = Cast<to = 9>(going)
    last, counts = Loop(most, go, x) <body = b (int64 i, bool c, float[n] s) => (bool more, float[n] next, int64 count) {
        places = NonZero(s)
        count = Size(places)
        one = Constant<value_float = 1.0>()
        zero = Constant<value_int = 0>()
        less = Sub(s, one)
        next = Relu(less)
        more = Greater(count, zero)
    }>
}"""


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_branches_with_results_of_different_sizes(target: str) -> None:
    imported = import_model(onnx.parser.parse_model(ROOMS))
    model = compile(Program(imported.module, imported.weights), target, Options(num_threads=1))
    for x in ([1, 0, 2], [-1, 0, 2, -3], [], [3, -1, 4, 1, 5]):
        y, z = model(np.float32(x)).values()
        places = np.flatnonzero(x) if sum(x) > 0 else np.int64([1, 2, 3])
        np.testing.assert_array_equal(z, places)
        np.testing.assert_array_equal(y, np.float32(x)[places, None].repeat(2, 1) if sum(x) > 0 else [[5, 6]])


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_scan_outputs_with_a_runtime_trip_count(target: str) -> None:
    imported = import_model(onnx.parser.parse_model(UNTIL))
    model = compile(Program(imported.module, imported.weights), target, Options(num_threads=1))
    for x, most, counts in (([3, 0, 1], 10, [2, 1, 1, 0]), ([3, 0, 1], 2, [2, 1]), ([0], 4, [0]), ([2, 2], 0, [])):
        got = model(np.float32(x), np.int64(most))
        np.testing.assert_array_equal(got["counts"], counts)
        np.testing.assert_array_equal(got["last"], np.maximum(np.float32(x) - len(counts), 0))
    with pytest.raises(DlcError, match="at most 16,777,215 iterations; its trip count is 4294967296"):
        model(np.float32([1]), np.int64(1 << 32))


def test_a_subgraph_that_reads_an_undefined_name() -> None:
    stray = graph([node("Neg", ["nowhere"], ["turned"])], ["turned"])
    nodes = [node("If", ["c"], ["y"], then_branch=stray, else_branch=NEGATED)]
    with pytest.raises(ModelError, match=r"reads 'nowhere', which nothing produces"):
        import_model(model(nodes, {"x": [3, 2]}, ["y"], weights={"c": np.bool_(True)}))


def test_a_subgraph_with_wrong_inputs() -> None:
    nodes = [node("If", ["c"], ["y"], then_branch=graph([], ["z"], ["z"]), else_branch=NEGATED)]
    with pytest.raises(ModelError, match=r"If-y.*expects 1 inputs, got 0"):
        import_model(model(nodes, {"x": [3, 2]}, ["y"], weights={"c": np.bool_(True)}))


def test_an_endless_loop_in_an_untaken_branch() -> None:
    body = graph([node("Neg", ["s"], ["next"]), node("Less", ["s", "limit"], ["small"]), node("ReduceMax", ["small_f"], ["top"], keepdims=0), node("Cast", ["small"], ["small_f"], to=FLOAT), node("Greater", ["top", "half"], ["on"])], ["on", "next"], ["i", "c", "s"])  # fmt: skip
    endless = graph([node("Loop", ["", "", "x"], ["last"], body=body)], ["last"])
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "limit"], ["c"]),
        node("If", ["c"], ["y"], then_branch=endless, else_branch=NEGATED),
    ]
    source = model(nodes, {"x": [3, 2]}, ["y"], weights={"limit": np.float32(9), "half": np.float32(0.5)})
    np.testing.assert_array_equal(run(import_model(source), {"x": X})["y"], -X)


def test_results_of_a_loop_are_the_callers_own() -> None:
    body = graph([node("Identity", ["s"], ["next"]), node("Less", ["s", "t"], ["less"])], ["less", "next"], ["i", "c", "s"])
    nodes = [node("Loop", ["m", "", "x"], ["last"], body=body), node("Identity", ["x"], ["same"])]
    source = model(nodes, {"x": [], "m": [], "t": []}, ["last", "same"], dtypes={"m": TensorProto.INT64})
    imported = import_model(source)
    x = np.array(1, np.float32)
    last, same = compile(Program(imported.module, imported.weights), "cpu", Options(num_threads=1)).run_unchecked(
        [x, np.array(0), np.array(3, np.float32)]
    )
    assert not any(np.may_share_memory(a, b) for a, b in ((last, x), (same, x), (last, same)))
    assert float(last) == float(same) == 1


def test_values_computed_from_a_data_dependent_size() -> None:
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Shape", ["places"], ["shape"]),
        node("ConstantOfShape", ["shape"], ["zeros"]),
    ]
    imported = import_model(model(nodes, {"x": [3, 2]}, ["shape", "zeros"], dtypes={"shape": TensorProto.INT64}))
    compiled = compile(Program(imported.module, imported.weights), "cpu", Options(num_threads=1))
    for x, count in ((X, 6), (X * [[1], [0], [0]], 2)):
        shape, zeros = (np.asarray(a) for a in compiled.run_unchecked([x.astype(np.float32)]))
        assert shape.tolist() == [2, count] and zeros.shape == (2, count) and not zeros.any()


def test_a_loop_with_a_trip_count_only_is_a_scan() -> None:
    assert op_names(import_model(looped(1200, node("Identity", ["c"], ["on"])))).count("dl.scan") == 1


def test_a_branch_with_contradicting_shapes_fails_when_taken() -> None:
    other = graph([node("Reshape", ["x", "seven"], ["z"])], ["z"], weights={"seven": np.int64([7])})
    nodes = [node("If", ["c"], ["y"], then_branch=HALVED, else_branch=other)]
    imported = import_model(model(nodes, {"x": [3, 2], "c": []}, ["y"], dtypes={"c": TensorProto.BOOL}))
    compiled = compile(Program(imported.module, imported.weights), "cpu", Options(num_threads=1))
    np.testing.assert_array_equal(compiled(X, np.bool_(True))["y"], X / 2)
    with pytest.raises(DlcError, match=r"If-y.*Reshape-z"):
        compiled(X, np.bool_(False))


def test_branches_with_different_result_counts() -> None:
    nodes = [node("If", ["c"], ["y"], then_branch=HALVED, else_branch=graph([], ["x", "x"]))]
    with pytest.raises(ModelError, match=r"If-y.*have 1 and 2 results"):
        import_model(model(nodes, {"x": [3, 2], "c": []}, ["y"], dtypes={"c": TensorProto.BOOL}))


def test_directions_are_0_or_1() -> None:
    with pytest.raises(ModelError, match="a direction is 0 or 1, got"):
        import_model(scanned(SUMS, ["next", "next"], scan_input_directions=[2]))


def test_a_loop_over_a_data_dependent_size() -> None:
    """s ← max(s - 1, 0) while more than two elements are not 0."""
    steps = [
        node("NonZero", ["s"], ["places"]),
        node("Shape", ["places"], ["shape"]),
        node("Gather", ["shape", "one"], ["count"]),
        node("Greater", ["count", "two"], ["on"]),
        node("Sub", ["s", "step"], ["less"]),
        node("Relu", ["less"], ["next"]),
    ]
    nodes = [node("Loop", ["", "", "x"], ["last"], body=graph(steps, ["on", "next"], ["i", "c", "s"]))]
    known = {"one": np.int64(1), "two": np.int64(2), "step": np.float32(1)}
    imported = import_model(model(nodes, {"x": [3, 2]}, ["last"], weights=known))
    (got,) = compile(Program(imported.module, imported.weights), "cpu", Options(num_threads=1, workers=1)).run_unchecked([X])
    expected, on = X, True
    while on:
        on, expected = np.count_nonzero(expected) > 2, np.maximum(expected - 1, 0)
    np.testing.assert_array_equal(np.asarray(got), expected)


@pytest.mark.parametrize("size", [5, 4, 3, 2, 0])
@pytest.mark.parametrize("source", ["size", "data-dependent size", "value"])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_loop_with_a_negative_trip_count_has_no_iterations(target: str, source: str, size: int) -> None:
    sizes = {
        "size": [node("Size", ["x"], ["n"])],
        "data-dependent size": [node("NonZero", ["x"], ["places"]), node("Size", ["places"], ["n"])],
        "value": [node("ReduceSum", ["x"], ["total"], keepdims=0), node("Cast", ["total"], ["n"], to=TensorProto.INT64)],
    }
    body = [node("Identity", ["c"], ["on"]), node("Mul", ["s", "two"], ["next"]), node("Identity", ["next"], ["row"])]
    nodes = [
        *sizes[source],
        node("Sub", ["n", "three"], ["count"]),
        node("Loop", ["count", "", "start"], ["last"], body=graph(body[:2], ["on", "next"], ["i", "c", "s"])),
        node("Loop", ["count", "", "start"], ["again", "rows"], body=graph(body, ["on", "next", "row"], ["i", "c", "s"])),
    ]
    known = {"three": np.int64(3), "two": np.float32(2), "start": np.float32([1, 3])}
    compiled = dlc.compile_model(model(nodes, {"x": ["N"]}, ["last", "again", "rows"], weights=known), target=target)
    got, count = compiled(np.ones(size, np.float32)), max(size - 3, 0)
    for name in ("last", "again"):
        np.testing.assert_array_equal(got[name], known["start"] * 2**count)
    np.testing.assert_array_equal(got["rows"], np.outer(2 ** np.arange(1, count + 1), known["start"]))
