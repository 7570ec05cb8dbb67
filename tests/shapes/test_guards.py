"""Guards: programs are valid exactly for the sizes that satisfy what shape inference and importers assume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dlc
import dlc.numpy
from dlc.compiler import Program, compile, load_program
from dlc.compiler.size_domains import _SolvedGuards, infer_domain  # pyright: ignore[reportPrivateUsage]
from dlc.errors import DlcError, ModelError, ShapeError
from dlc.options import Options
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.shapes.dims import Dim
from dlc.shapes.domain import SizeDomain
from dlc.shapes.guards import Guard, SizeBounds
from dlc.shapes.input_sizes import solvable_axes
from dlc.shapes.parsing import parse_size
from dlc.shapes.ranges import SizeRange
from tests.shapes.test_domains import equal_sizes
from tests.targets import TARGETS

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '
RESHAPE = HEADER + "(float[N,3] x) => (float[A,B] y) <int64[2] k = {-1,2}> { [flat] y = Reshape(x, k) }"


@pytest.mark.parametrize(
    ("size", "relation", "text"),
    [
        ("N - 5", ">=", "N >= 5"),
        ("9 - N", ">=", "N <= 9"),
        ("N - M", "==", "N == M"),
        ("2 * N - 3 * M + 1", "!=", "2 * N + 1 != 3 * M"),
        ("3 * N - (3 * N) // 2 * 2", "==", "N % 2 == 0"),
        ("8 * (N // 2) - 4 * N", "==", "N % 2 == 0"),
        ("4 * N - 4 * N // M * M", "==", "(4 * N) % M == 0"),
        ("M - N // (M // 2) * (M // 2)", ">=", "M >= (M // 2) * (N // (M // 2))"),
        ("2 * ((M + N) // 2) - M - N", "!=", "(M + N) % 2 != 0"),
        ("6 * N - 42", ">=", "N >= 7"),
        ("N // 4 * 4 - N", "==", "N % 4 == 0"),
    ],
)
def test_text(size: str, relation: str, text: str) -> None:
    assert str(parse_size(str(parse_size(size)))) == str(parse_size(size))
    assert str(Guard(Dim.lift(parse_size(size)), relation)) == text  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("size", "relation", "decided"),
    [
        ("N - 2", ">=", True),
        ("N - 7", ">=", False),
        ("N - 3", ">=", None),
        ("N - 8", "==", False),
        ("N - 8", "!=", True),
        ("N * M - M", ">=", True),
        ("(N - 2) // 2", ">=", True),
        ("M * M - M", ">=", True),
        ("((N + 1) // 2) * M - M", ">=", True),
    ],
)
def test_bounds_decide_guards(size: str, relation: str, decided: bool | None) -> None:
    bounds = SizeBounds({"N": SizeRange(2, 6)})
    assert bounds.decide(Guard(Dim.lift(parse_size(size)), relation)) is decided  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_reshape_is_right_for_even_sizes_and_an_error_for_odd_ones(target: str, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(RESHAPE), tmp_path / "m.onnx")
    program = load_program(tmp_path / "m.onnx")
    domain, reason = infer_domain(program)
    assert domain is not None and (str(domain), reason) == (
        "N % 2 == 0",
        "node 'flat' (Reshape) requires N % 2 == 0",
    )
    model = compile(program, target, Options(num_threads=1, cache=False))
    for n in range(12):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        if n % 2 == 0:
            np.testing.assert_array_equal(model(x)["y"], x.reshape(-1, 2))
            continue
        with pytest.raises(ShapeError, match=f"with N = {n}.*flat|flat.*with N = {n}"):
            model(x)


def test_saved_programs_name_the_violated_guard(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(RESHAPE), tmp_path / "m.onnx")
    model = dlc.compile_model(tmp_path / "m.onnx", cache=False, num_threads=1)
    model.save(tmp_path / "m.dlc")
    loaded = dlc.load(tmp_path / "m.dlc", num_threads=1)
    for n in (0, 2, 8, 10):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        np.testing.assert_array_equal(loaded(x)["y"], x.reshape(-1, 2))
    with pytest.raises(ShapeError, match=r"not compiled for N = 7; .*node 'flat' \(Reshape\) requires N % 2 == 0"):
        loaded(np.ones((7, 3), np.float32))
    # The program itself checks its guards, in native code too.
    for cached in (model.artifact, loaded.artifact):
        assert isinstance(cached, SpecializedModel)
        with pytest.raises(ShapeError, match=r"with N = 7: node 'flat' \(Reshape\) requires N % 2 == 0"):
            cached.specializations.entries[0].program.run_unchecked([np.ones((7, 3), np.float32)])


@pytest.mark.parametrize(
    ("graph", "domain"),
    [
        # What the importer assumes about sizes.
        ("(float[N,6] x) => (y, z) <int64[2] s = {1,4}> { y, z = Split<axis = 0>(x, s) }", SizeDomain({"N": SizeRange(5, 5)})),
        ("(float[N,6] x) => (y) <int64[2] i = {0,-4}> { y = Gather(x, i) }", SizeDomain({"N": SizeRange(4)})),
        ("(float[N,6] x) => (y) <int64[1] i = {5}> { y = Gather(x, i) }", SizeDomain({"N": SizeRange(6)})),
        # What shape inference assumes.
        ("(float[N,M] x) => (y) <int64[2] p = {3,-1}> { y = Reshape(x, p) }", "(M * N) % 3 == 0"),
        ("(float[1,2,N] x) => (y) { y = MaxPool<kernel_shape = [3], strides = [2]>(x) }", SizeDomain({"N": SizeRange(3)})),
        (
            "(float[N,6] x, float[M,6] z) => (y) <int64[1] p = {-1}> { a = Concat<axis = 1>(x, z) y = Reshape(a, p) }",
            SizeDomain(guards=equal_sizes(N="M")),
        ),
        ("(float[N] x, float[N] z) => (y) { y = Add(x, z) }", SizeDomain()),
    ],
)
def test_domains(graph: str, domain: SizeDomain | str | None, tmp_path: Path) -> None:
    text = HEADER + graph.replace("(y, z)", "(float[A] y, float[B] z)").replace("=> (y)", "=> (float[A] y)")
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    inferred = infer_domain(load_program(tmp_path / "m.onnx"))[0]
    assert (str(inferred) if isinstance(domain, str) else inferred) == domain


@pytest.mark.parametrize(
    ("size", "holds"),
    [
        ("n - k", True),
        ("n * k - k", True),
        # The factor (n - 3) // 2 is negative for small n, where the size grows with k.
        ("(n - 3) // 2 * n - k * ((n - 3) // 2)", False),
    ],
)
def test_guards_of_data_dependent_sizes(size: str, holds: bool) -> None:
    """Of the size k, at most n, guards follow from its maximum only where the size does not grow with k."""
    solved = _SolvedGuards({"n": SizeRange(), "k": SizeRange()}, {"k": Dim.symbol("n")})
    solved.add([Guard(Dim.lift(parse_size(size)), ">=")])
    assert (not solved.remaining) is holds


def _load(graph: str, folder: Path) -> Program:
    onnx.save(onnx.parser.parse_model(HEADER + graph), folder / "m.onnx")
    return load_program(folder / "m.onnx")


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_copied_size_cancels_in_an_inferred_one(target: str, tmp_path: Path) -> None:
    """`0` in a target shape copies a size, which must not be 0; the inferred size does not depend on it."""
    graph = "(float[N,M] x) => (float[A,B] y) <int64[2] k = {0,-1}> { y = Reshape(x, k) }"
    program = _load(graph, tmp_path)
    assert infer_domain(program)[0].ranges == {"N": SizeRange(1)}
    model = compile(program, target, Options(num_threads=1, cache=False))
    for shape in ((2, 3), (2, 0)):
        assert model(np.zeros(shape, np.float32))["y"].shape == shape
        static = dlc.compile_model(tmp_path / "m.onnx", target=target, input_shapes={"x": shape}, cache=False)
        assert static(np.zeros(shape, np.float32))["y"].shape == shape


def test_a_computed_target_size_that_may_be_0_is_a_guard(tmp_path: Path) -> None:
    """A computed size of 0 would copy the size of the input at the same axis."""
    graph = "(float[3,N] x) => (float[A,B] y) <int64[1] k = {-1}> { n = Shape<start=1>(x) s = Concat<axis=0>(n, k) y = Reshape(x, s) }"
    assert infer_domain(_load(graph, tmp_path))[0] == SizeDomain({"N": SizeRange(1)})
    model = dlc.compile_model(tmp_path / "m.onnx", target="reference", cache=False)
    for n, shape in ((4, (4, 3)), (0, (3, 0))):
        assert model(np.zeros((3, n), np.float32))["y"].shape == shape


def test_a_contradiction_of_assumed_sizes_is_no_error_of_the_model(tmp_path: Path) -> None:
    """The slice has five rows under its guard N >= 5, which the split contradicts; N = 4 is valid."""
    graph = """(float[N] x) => (float[A] y, float[B] z) <int64[1] s = {0}, int64[1] e = {5}, int64[2] k = {2,2}> {
        r = Slice(x, s, e) y, z = Split<axis = 0>(r, k) }"""
    onnx.save(onnx.parser.parse_model(HEADER + graph), tmp_path / "m.onnx")
    model = dlc.compile_model(tmp_path / "m.onnx", target="reference", cache=False)
    assert model(np.arange(4, dtype=np.float32))["z"].tolist() == [2, 3]
    with pytest.raises(ModelError, match="do not sum to the size 5"):
        model(np.arange(5, dtype=np.float32))


def test_sizes_that_differ_broadcast_if_one_is_1(tmp_path: Path) -> None:
    graph = """(float[N] x) => (float[A] y) <int64[1] s = {3}, int64[1] e = {99999999999}> {
        r = Slice(x, s, e) y = Add(x, r) }"""
    onnx.save(onnx.parser.parse_model(HEADER + graph), tmp_path / "m.onnx")
    model = dlc.compile_model(tmp_path / "m.onnx", target="reference", cache=False)
    assert model(np.arange(4, dtype=np.float32))["y"].tolist() == [3, 4, 5, 6]
    with pytest.raises(DlcError, match="do not broadcast"):
        model(np.arange(5, dtype=np.float32))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_traced_functions_guard_inferred_sizes_and_reductions(target: str) -> None:
    @dlc.jit(target=target, cache=False, dynamic={"x": {1: "N"}})
    def transposed(x: Any) -> Any:
        return dlc.numpy.reshape(x, (x.shape[1], -1))

    @dlc.jit(target=target, cache=False, dynamic={"x": {0: "N"}})
    def largest(x: Any) -> Any:
        return dlc.numpy.max(x, axis=0)

    assert transposed(np.ones((3, 4), np.float32)).shape == (4, 3)
    with pytest.raises(ShapeError, match="do not fill"):
        transposed(np.ones((3, 0), np.float32))
    assert largest(np.ones((3, 4), np.float32)).shape == (4,)
    with pytest.raises(ShapeError, match="no elements along axis 0"):
        largest(np.ones((0, 4), np.float32))


def test_the_evaluator_checks_data_dependent_sizes(tmp_path: Path) -> None:
    """A loop body adds a data-dependent number of elements to four."""
    graph = """(float[4] x) => (float[4] y) {
        k = NonZero(x) c = Cast<to = 1>(k)
        y = Scan<num_scan_inputs = 1, body = b (float[4] s, float[M] e) => (float[4] t) { t = Add(s, e) }>(x, c) }"""
    onnx.save(onnx.parser.parse_model(HEADER + graph), tmp_path / "m.onnx")
    for target in ("reference", "cpu"):
        model = dlc.compile_model(tmp_path / "m.onnx", target=target, num_threads=1, cache=False)
        assert model(np.float32([1, 2, 3, 4]))["y"].tolist() == [1, 3, 5, 7]
        assert model(np.float32([0, 2, 0, 0]))["y"].tolist() == [1, 3, 1, 1]
        with pytest.raises(DlcError, match="broadcast"):
            model(np.float32([0, 2, 3, 0]))


def test_products_are_solved_to_their_factors() -> None:
    solved = _SolvedGuards({"N": SizeRange(), "M": SizeRange()}, {})
    solved.add([Guard(Dim.lift(parse_size("N * M - 1")), ">=")])
    assert (solved.ranges, solved.remaining) == ({"N": SizeRange(1), "M": SizeRange(1)}, [])


@pytest.mark.parametrize("target", TARGETS)
def test_an_axis_may_be_a_multiple_of_a_symbol(target: str) -> None:
    def paired(x: Any) -> Any:
        return dlc.numpy.sum(dlc.numpy.reshape(x, (-1, 2, 3)), axis=1)

    x = np.arange(42, dtype=np.float32).reshape(14, 3)
    dynamic = dlc.jit(target=target, num_threads=1, cache=False, dynamic={"x": {0: "2*N + 2"}})(paired)
    model = dynamic.lower(x[:8]).compile()
    assert model.outputs[0].shape[0] == parse_size("N + 1")
    assert not isinstance(model.artifact, SpecializedModel)
    for n in (2, 4, 14):
        np.testing.assert_array_equal(model(x[:n])["result"], x[:n].reshape(-1, 2, 3).sum(1))
    with pytest.raises(ShapeError, match=r"expected .*2 \* N \+ 2, 3\] with N = 1; got .*5, 3"):
        model(x[:5])


def test_an_axis_of_one_symbol_is_preferred() -> None:
    shapes = [[parse_size("2 * N"), parse_size("M + 3")], [parse_size("N"), 4]]
    assert {symbol: found[:2] for symbol, found in solvable_axes(shapes).items()} == {"N": (1, 0), "M": (0, 1)}


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("graph", "first", "less"),
    [
        ("int64 z = {0}, int64 t = {3}> { s = Shape(x) n = Squeeze(s, a) l = Sub(n, t) y = Range(z, l, o) }", 0, 3),
        (
            "int64 z = {5}, float t = {0}> { m = Greater(x, t) c = Cast<to=7>(m) l = ReduceSum<keepdims=0>(c) y = Range(z, l, o) }",
            5,
            0,
        ),
    ],
)
def test_a_range_whose_limit_is_below_its_start_is_empty(target: str, graph: str, first: int, less: int) -> None:
    """The limit is computed from a size, and from data."""
    text = HEADER + "(float[N] x) => (int64[M] y) <int64 o = {1}, int64[1] a = {0}, " + graph
    model = dlc.compile_model(onnx.parser.parse_model(text), target=target, num_threads=1, cache=False)
    for n in (0, 1, 5, 8):
        assert model(np.ones(n, np.float32))["y"].tolist() == [*range(first, n - less)]


def test_one_of_guards_that_imply_each_other_remains() -> None:
    """For n = 0 and 1, n ≥ 1 and n - n // 3 ≥ 1 are the same."""

    def inner_part(xp: Any, x: Any) -> Any:
        y = xp.array_split(xp.full((x.shape[0] % 4,), 2.0), 3)[0]
        return y[y.shape[0] // 3 : y.shape[0] - 1]

    compiled = dlc.jit(dynamic={"x": {0: "N"}}, target="reference")(lambda x: inner_part(dlc.numpy, x))
    for size in (7, 12, 3, 0):
        x = np.ones(size, np.float32)
        assert np.asarray(compiled(x)).shape == inner_part(np, x).shape
