"""Guards: programs are valid exactly for the sizes that satisfy what shape inference and importers assume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import dlc
from dlc.compiler import compile, load_program
from dlc.compiler.size_domains import _SolvedGuards, infer_domain  # pyright: ignore[reportPrivateUsage]
from dlc.dims import Dim, SizeRange, parse
from dlc.errors import ShapeError, UnsupportedError
from dlc.guards import Guard, SizeBounds
from dlc.options import Options
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.runtime.sizes.domain import SizeDomain

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '
RESHAPE = HEADER + "(float[N,3] x) => (float[A,B] y) <int64[2] k = {-1,2}> { [flat] y = Reshape(x, k) }"


@pytest.mark.parametrize(
    ("size", "relation", "text"),
    [
        ("N - 5", ">=", "N >= 5"),
        ("9 - N", ">=", "N <= 9"),
        ("N - M", "==", "N == M"),
        ("2 * N - 3 * M + 1", "!=", "2 * N + 1 != 3 * M"),
        ("3 * N - (3 * N) // 2 * 2", "==", "(3 * N) % 2 == 0"),
        ("N // 4 * 4 - N", "==", "N % 4 == 0"),
    ],
)
def test_text(size: str, relation: str, text: str) -> None:
    assert str(Guard(Dim.lift(parse(size)), relation)) == text  # pyright: ignore[reportArgumentType]


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
    assert bounds.decide(Guard(Dim.lift(parse(size)), relation)) is decided  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_reshape_is_right_for_even_sizes_and_an_error_for_odd_ones(target: str, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(RESHAPE), tmp_path / "m.onnx")
    program = load_program(tmp_path / "m.onnx")
    domain, reason = infer_domain(program)
    assert domain is not None and (str(domain), reason) == (
        "(3 * N) % 2 == 0",
        "node 'flat': dl.reshape requires (3 * N) % 2 == 0",
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
    with pytest.raises(UnsupportedError, match=r"not compiled for N = 7; .*node 'flat': dl.reshape requires \(3 \* N\) % 2"):
        loaded(np.ones((7, 3), np.float32))
    # The program itself checks its guards, in native code too.
    for cached in (model.artifact, loaded.artifact):
        assert isinstance(cached, SpecializedModel)
        with pytest.raises(ShapeError, match=r"with N = 7: node 'flat': dl.reshape requires \(3 \* N\) % 2 == 0"):
            cached.specializations.entries[0].program.run_unchecked([np.ones((7, 3), np.float32)])


@pytest.mark.parametrize(
    ("graph", "domain"),
    [
        # What the importer assumes about sizes.
        ("(float[N,6] x) => (y, z) <int64[2] s = {1,4}> { y, z = Split<axis = 0>(x, s) }", None),
        ("(float[N,6] x) => (y) <int64[2] i = {0,-4}> { y = Gather(x, i) }", SizeDomain({"N": SizeRange(4)})),
        ("(float[N,6] x) => (y) <int64[1] i = {5}> { y = Gather(x, i) }", SizeDomain({"N": SizeRange(6)})),
        # What shape inference assumes.
        ("(float[N,M] x) => (y) <int64[2] p = {3,-1}> { y = Reshape(x, p) }", "(M * N) % 3 == 0"),
        ("(float[1,2,N] x) => (y) { y = MaxPool<kernel_shape = [3], strides = [2]>(x) }", SizeDomain({"N": SizeRange(3)})),
        (
            "(float[N,6] x, float[M,6] z) => (y) <int64[1] p = {-1}> { a = Concat<axis = 1>(x, z) y = Reshape(a, p) }",
            SizeDomain(equal={"N": "M"}),
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
    solved.add([Guard(Dim.lift(parse(size)), ">=")])
    assert (not solved.remaining) is holds
