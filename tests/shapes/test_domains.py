"""Programs that support a domain of their symbolic sizes: one compilation serves these, other sizes are specialized."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.backends.reference import evaluate
from dlc.backends.registry import backend_of
from dlc.compiler import Program, compile, load_program
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.compiler.size_domains import infer_domain, restrict_to_domain
from dlc.errors import DlcError, ShapeError
from dlc.instrument.report import Report
from dlc.options import Options
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.runtime.saving.container import SectionWriter
from dlc.shapes.dims import Dim
from dlc.shapes.domain import SizeDomain
from dlc.shapes.guards import Guard
from dlc.shapes.ranges import SizeRange
from tests.shapes.test_specializations import count_compilations

ONE = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,6] x) => (float[A,B] y) '
TWO = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,6] x, float[M,6] z) => (float[A,B] y) '
THREE = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,6] x, float[M,6] z, float[K,6] v) => (float[A,B] y) '
SLICE = "<int64[1] s = {2}, int64[1] e = {5}, int64[1] a = {0}> { y = Slice(x, s, e, a) }"
ROWS = "<int64[1] s = {0}, int64[1] a = {0}> { n = Shape<end = 1>(x)  p = Slice(w, s, n, a)  y = Add(x, p) }"
FIRST = "<int64 i = {0}> { r = Gather(x, i)  y = Add(x, r) }"


def equal_sizes(**representatives: str) -> tuple[Guard, ...]:
    """Return the guards that symbols equal others."""
    return tuple(Guard(Dim.lift(Dim.symbol(a) - Dim.symbol(b)), "==") for a, b in representatives.items())


def program(tmp_path: Path, text: str, **shapes: tuple[int, ...]) -> Program:
    """Return the program of a graph that reads weights of these shapes, including `w`."""
    model = onnx.parser.parse_model(text)
    for name, shape in {"w": (9, 6), **shapes}.items():
        array = np.random.default_rng(len(name)).standard_normal(shape, np.float32) / 4
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "m.onnx")
    return load_program(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        (ONE + "{ y = Exp(x) }", SizeDomain()),
        (ONE + SLICE, SizeDomain({"N": SizeRange(5)})),
        (ONE + ROWS, SizeDomain({"N": SizeRange(0, 9)})),
        (ONE + FIRST, SizeDomain({"N": SizeRange(1)})),
        (TWO + "{ y = Add(x, z) }", SizeDomain(guards=equal_sizes(N="M"))),
        (TWO + "{ y = Concat<axis = 0>(x, z) }", SizeDomain()),
        (THREE + "{ t = Concat<axis = 1>(x, z)  y = Concat<axis = 1>(t, v) }", SizeDomain(guards=equal_sizes(N="K", M="K"))),
        (
            TWO + ROWS.replace("y = Add(x, p)", "t = Add(x, p)  y = Concat<axis = 1>(t, z)"),
            SizeDomain({"M": SizeRange(0, 9)}, equal_sizes(N="M")),
        ),
        (ONE + "<int64[2] k = {7,6}> { y = Reshape(x, k) }", SizeDomain({"N": SizeRange(7, 7)})),
        # A size of one would broadcast, which is decided when the kernel is generated.
        (ONE + "<int64[2] k = {2,6}> { y = Expand(x, k) }", SizeDomain({"N": SizeRange(2, 2)})),
        (
            TWO + "<float[2,6] v = {1,2,3,4,5,6,7,8,9,10,11,12}> { t = Add(x, v)  y = Concat<axis = 0>(t, z) }",
            SizeDomain({"N": SizeRange(2, 2)}),
        ),
    ],
)
def test_domain_of_a_program(text: str, domain: SizeDomain | None, tmp_path: Path) -> None:
    assert infer_domain(program(tmp_path, text))[0] == domain


def test_programs_by_domain(tmp_path: Path) -> None:
    whole = program(tmp_path, TWO + "{ y = Concat<axis = 0>(x, z) }")
    part = restrict_to_domain(whole, SizeDomain({"M": SizeRange(3, 3), "N": SizeRange(1, 8)}))
    assert [info.shape[0] for info in part.inputs][1] == 3
    equal = restrict_to_domain(whole, SizeDomain(guards=equal_sizes(N="M")))
    assert [str(info.shape[0]) for info in equal.inputs] == ["M", "M"]


@pytest.mark.parametrize("text", [ONE + SLICE, ONE + ROWS, ONE + FIRST])
def test_one_compilation_per_domain(text: str, tmp_path: Path) -> None:
    report, whole = Report(), program(tmp_path, text)
    model = compile(whole, report=report, options=Options(num_threads=1))
    domain, reason = infer_domain(whole)
    assert domain is not None and (report.dynamic_domain, report.specialization_reason) == (str(domain), reason)
    model.save(tmp_path / "m.dlc")
    loaded = dlc.load(tmp_path / "m.dlc", num_threads=1)
    for n in range(12):
        x = np.random.default_rng(n).standard_normal((n, 6), np.float32)
        try:
            (expected,) = evaluate(whole.specialize({"N": n}).module, [x], whole.weights)
        except DlcError as error:
            with pytest.raises(ShapeError, match=re.escape(str(error))):
                model(x)
            continue
        np.testing.assert_allclose(model(x)["y"], expected, rtol=1e-6)
        if domain.may_hold({"N": n}):
            np.testing.assert_allclose(loaded(x)["y"], expected, rtol=1e-6)
        else:
            with pytest.raises(ShapeError, match=f"not compiled for N = {n}.*the file holds N in "):
                loaded(x)


def test_a_program_of_a_domain_returns_its_input_and_a_value_twice(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 17]> g (float[N,6] x) => (float[N,6] x, float[A,B] y, float[A,B] z) '
            "<int64 i = {0}> { r = Gather(x, i)  y = Add(x, r)  z = Identity(y) }"
        ).SerializeToString()
    )
    model = dlc.compile_model(tmp_path / "m.onnx", cache=False)
    model.save(tmp_path / "m.dlc")
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    for one in (model, dlc.load(tmp_path / "m.dlc")):
        for got, expected in zip(one(x).values(), (x, x + x[0], x + x[0]), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_truncated_slices_match_the_model(tmp_path: Path) -> None:
    program(tmp_path, ONE + SLICE)
    model = dlc.compile_model(tmp_path / "m.onnx", cache=False, num_threads=1)
    x = np.arange(36, dtype=np.float32).reshape(6, 6)
    for n in range(7):
        np.testing.assert_array_equal(model(x[:n])["y"], x[:n][2:5])
    model.save(tmp_path / "m.dlc")
    np.testing.assert_array_equal(dlc.load(tmp_path / "m.dlc")(x[:3])["y"], x[2:3])


def test_unequal_sizes_are_reported_with_their_node(tmp_path: Path) -> None:
    model = compile(program(tmp_path, TWO + "{ [join] y = Concat<axis = 1>(x, z) }"), options=Options(num_threads=1))
    x = np.ones((5, 6), np.float32)
    assert np.asarray(model(x, x)["y"]).shape == (5, 12)
    with pytest.raises(ShapeError, match=r"join.*N = 5, M = 4"):
        model(x, x[:4])


STRIDED = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,H,W] x) => (float[A,B,C,D] y, float[E,F,G,I] mean)
{
    a = Conv<strides = [2, 1], pads = [1, 1, 1, 1]>(x, w)
    b = Sigmoid(a)
    c = Conv<group = 8, strides = [2, 2], pads = [1, 1, 1, 1]>(b, d)
    p = MaxPool<kernel_shape = [3, 3], strides = [1, 2], pads = [1, 1, 1, 1]>(c)
    y = Conv<strides = [2, 3], dilations = [2, 1]>(p, e)
    mean = GlobalAveragePool(y)
}"""


def test_strided_windows_on_images_of_any_size(tmp_path: Path) -> None:
    whole, report = program(tmp_path, STRIDED, w=(8, 3, 3, 3), d=(8, 1, 3, 3), e=(16, 8, 2, 2)), Report()
    compiled = compile(whole, report=report, options=Options(num_threads=1))
    assert report.dynamic_domain == "H in 9.., W in 5.."
    for n, height, width in ((1, 9, 5), (2, 10, 6), (0, 17, 9), (1, 33, 64), (3, 20, 131)):
        x = np.random.default_rng(n).standard_normal((n, 3, height, width), np.float32)
        expected = evaluate(whole.with_sizes({"N": n, "H": height, "W": width}).module, [x], whole.weights)
        for got, want in zip(compiled(x).values(), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_every_stage_serves_images_of_any_size(tmp_path: Path) -> None:
    whole = program(tmp_path, STRIDED, w=(8, 3, 3, 3), d=(8, 1, 3, 3), e=(16, 8, 2, 2))
    domain, _ = infer_domain(whole)
    assert domain is not None
    lowering = Lowering(Compilation(restrict_to_domain(whole, domain), backend_of("cpu"), Options(verify=True)))
    for stage in ("dl", "fusion", "linalg", "tiling", "loops", "host"):
        lowering.host() if stage == "host" else lowering.run([s for s in lowering.plan if s.name == stage])
        for height, width in ((9, 5), (12, 8)):
            x = np.random.default_rng(height).standard_normal((1, 3, height, width), np.float32)
            expected = evaluate(whole.with_sizes({"N": 1, "H": height, "W": width}).module, [x], whole.weights)
            for got, want in zip(evaluate(lowering.module, [x], lowering.weights), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_domain_with_unknown_symbols_is_refused(tmp_path: Path) -> None:
    model = compile(program(tmp_path, ONE + SLICE), options=Options(cache=False))
    assert model.artifact is not None
    written = model.artifact.serialize(SectionWriter(), {})
    for ranges, guards in (({"K": [5, None]}, []), ({}, [["N - K", "==", ""]])):
        written["specializations"][0][1][:2] = [ranges, guards]
        with pytest.raises(ValueError, match="a domain with other symbols"):
            SpecializedModel.read(written, lambda _: model)


def test_a_size_that_other_sizes_determine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention over a cache and new keys, with a mask of both: `K == N + M` is solved for K."""
    compiled = count_compilations(monkeypatch)

    @dlc.jit(dynamic={"cache": {0: "N"}, "new": {0: "M"}, "mask": {1: "K"}}, num_threads=1, cache=False)
    def attend(query: Any, cache: Any, new: Any, mask: Any) -> Any:
        keys = dnp.concatenate([cache, new])
        return nn.softmax(query @ keys.T + mask) @ keys

    def expected(query: Any, cache: Any, new: Any, mask: Any) -> Any:
        keys = np.concatenate([cache, new])
        weights = np.exp(query @ keys.T + mask)
        return weights / weights.sum(-1, keepdims=True) @ keys

    rng = np.random.default_rng(0)
    for n, m in ((3, 4), (10, 1), (17, 30), (1, 8)):
        query, cache, new, mask = (
            rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((2, 8), (n, 8), (m, 8), (2, n + m))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(attend(query, cache, new, mask), expected(query, cache, new, mask), 1e-5, 1e-5)
    assert len(compiled) == 1
    with pytest.raises(dlc.ShapeError, match="do not broadcast"):
        attend(query, cache, new, mask[:, 1:])


def test_implied_guards_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = count_compilations(monkeypatch)
    factor = dlc.jit(target="reference", dynamic={"x": {0: "N", 1: "M"}}, cache=False)(lambda x: dnp.linalg.qr(x))
    factor(np.ones((3, 7), np.float32))
    (specialization,) = compiled
    assert str(cast(Any, specialization).domain) == "M >= N + 1"
