"""Dynamic-shape programs: one compilation serves all sizes, and every stage computes the same results as NumPy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.backends.opencl.backend import OpenCL
from dlc.backends.opencl.emit import emit_kernel
from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile, load_program
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.errors import DlcError, ModelError, ShapeError
from dlc.frontend.onnx import import_model
from dlc.instrument.report import Report
from dlc.ir import gpu, scf
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.opencl.devices import all_devices
from dlc.runtime.program.host_program import Launch
from dlc.runtime.saving.container import SectionWriter
from dlc.shapes.dims import UndecidableError
from dlc.shapes.parsing import parse_size_and_range
from dlc.shapes.ranges import SizeRange
from dlc.target import OPENCL_PROFILES
from tests.models.alone import answers_alone
from tests.shapes.stages import agree, at_each_stage

Array = NDArray[Any]
W = np.linspace(-1, 1, 24 * 40, dtype=np.float32).reshape(24, 40)
K = np.linspace(-1, 1, 3 * 3 * 8 * 16, dtype=np.float32).reshape(16, 8, 3, 3)
# Below, at and above the number of rows of a tile; none, one, and many.
SIZES = (0, 1, 3, 4, 5, 13, 14, 15, 16, 17, 29, 100, 129)


def rows(x: Any) -> Any:
    """A matrix product, and a softmax of its rows."""
    y = dnp.maximum(x @ W, 0)
    e = dnp.exp(y - y.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def flat(x: Any) -> Any:
    """Elementwise ops on rows whose length is not a multiple of a vector."""
    return dnp.tanh(x[:, :7]) * 2 + 1


def heads(x: Any) -> Any:
    """Axes that are merged with the symbolic one, and transposed."""
    y = x.reshape(-1, 4, 6).swapaxes(1, 2)
    return (y * dnp.arange(4, dtype=dnp.float32)).sum(axis=1)


def sums(x: Any) -> Any:
    """Reductions along the symbolic axis, contiguous and strided."""
    return x.sum(axis=0), x.swapaxes(0, 1).max(axis=1, initial=-3), (x * 10).astype(dnp.int32).sum(axis=0)


def softmax(x: Any) -> Any:
    e = dnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(x: Any) -> Any:
    """Attention with heads of size six: rows of symbolic length, and a product that is summed along it."""
    q = x.reshape(-1, 4, 6).swapaxes(0, 1)
    return (softmax((q @ q.swapaxes(1, 2)) * 0.2) @ q).swapaxes(0, 1)


def centred(x: Any) -> Any:
    """Rows that two ops traverse before the last one writes them."""
    y = x.swapaxes(0, 1) * 0.5
    return y - dnp.log(dnp.exp(y).sum(axis=-1, keepdims=True))


def ratios(x: Any) -> Any:
    """Quotients of two reductions of the same functions of symbolic rows, which no result can store."""
    y = dnp.sqrt(abs(x.swapaxes(0, 1))) + 1
    return y.sum(axis=1) / (y * y).max(axis=1, initial=1), dnp.exp(x).sum() / (dnp.exp(x) * x).sum()


def joined(x: Any) -> Any:
    """A concatenation of symbolic rows with constant ones."""
    return softmax(dnp.concatenate([x.swapaxes(0, 1), dnp.asarray(W[:, :3])], axis=1))


def means(x: Any) -> Any:
    """Sums divided by a symbolic count."""
    y = dnp.concatenate([x, x[:, :3].swapaxes(0, 1) @ x], axis=0)
    return y.mean(axis=0), (y * 10).astype(dnp.int32).swapaxes(0, 1).mean(axis=1), y.astype(dnp.float16).mean()


def gram(x: Any) -> Any:
    """A product that is reduced along the symbolic size, with a transposed operand."""
    return dnp.tanh(x.swapaxes(0, 1)) @ (x @ W)


def noisy(x: Any) -> Any:
    """Random values for each element, with a data-dependent key."""
    key = dlc.random.fold_in(dlc.random.key(0), (x[:, 0] > 0).sum())
    return dnp.where(dlc.random.bernoulli(key, 0.5, x.shape), x, 0)


def pooled(x: Any) -> Any:
    """The gradient of overlapping max-pooling windows with ties."""
    images = dnp.floor(x * 2).reshape(-1, 4, 6, 1)
    return dlc.grad(lambda y: (nn.max_pool(y, 2, strides=(2, 1)) ** 2).sum())(images)


def indexed(x: Any) -> Any:
    """Gathers and reversals at data-dependent indices, along and across the symbolic axis."""
    order = dnp.argsort(x[:, 0])
    # A size is used as a value, too.
    y = x.at[order - x.shape[0]].add(dnp.flip(x, 0) * 2) * x.shape[0] - (x.shape[0] + 1) / (1 + x * x)
    return dnp.flip(y.swapaxes(0, 1), (0, 1)), dnp.take(x, order, axis=0), dnp.sort(x, axis=0), dnp.sort(x, axis=1)


def updates(x: Any) -> Any:
    """A symbolic number of updates of static rows."""
    kinds = dnp.argmax(x, axis=1) % 5
    start = dnp.broadcast_to((x * 0).sum(axis=0), (5, 24))
    return start.at[kinds].add(x), dnp.take_along_axis(x, kinds[:, None], axis=1)


FUNCTIONS = (rows, flat, heads, sums, attention, centred, ratios, joined, means, gram, indexed, updates, noisy, pooled)


def lowered(function: Callable[..., Any], size: str = "N") -> Program:
    """Return the program of a function of a matrix [N, 24]."""
    return dlc.jit(dynamic={"x": {0: size}})(function).lower(np.zeros((2, 24), np.float32)).program


def input_of_size(size: int) -> Array:
    return np.random.default_rng(size).standard_normal((size, 24), dtype=np.float32)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_stage_serves_all_sizes(function: Callable[..., Any]) -> None:
    program = lowered(function)
    expected = {
        size: evaluate(program.with_sizes({"N": size}).module, [input_of_size(size)], program.weights) for size in (0, 1, 5)
    }
    for module, weights in at_each_stage(program):
        for size, want in expected.items():
            agree(evaluate(module, [input_of_size(size)], weights), want)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_compilation_serves_all_sizes(function: Callable[..., Any], tmp_path: Path) -> None:
    report, program = Report(), lowered(function)
    model = compile(program, report=report)
    assert report.specialization_reason is None
    model.save(tmp_path / "model.dlc")
    loaded = dlc.load(tmp_path / "model.dlc")
    for size in SIZES:
        x = input_of_size(size)
        expected = evaluate(program.with_sizes({"N": size}).module, [x], program.weights)
        for m in (model, loaded):
            agree(list(m(x).values()), expected)


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_a_device_serves_all_sizes() -> None:
    """One program for all functions, since starting an OpenCL driver takes long."""
    program, report = lowered(lambda x: (rows(x), *sums(x), centred(x), gram(x), *updates(x))), Report()
    model = compile(program, "opencl", report=report)
    assert report.specialization_reason is None
    for size in SIZES:
        expected = evaluate(program.with_sizes({"N": size}).module, [input_of_size(size)], program.weights)
        agree(list(map(np.asarray, model(input_of_size(size)).values())), expected)


@pytest.mark.parametrize("profile", ["opencl:gpu", "opencl:small"])
def test_work_groups_serve_all_sizes(profile: str) -> None:
    """Register tiles, cooperative groups along static and symbolic rows, and one work-item per element, after tiling."""
    program = lowered(lambda x: (rows(x), *sums(x), attention(x), *updates(x), gram(x)))
    lowering = Lowering(Compilation(program, OpenCL(profile), Options(num_threads=1, workers=1)))
    lowering.until("loops")
    assert any(isinstance(op, gpu.BarrierOp) for op in lowering.module.walk())
    for size in (0, 1, 19):
        got = evaluate(lowering.module, [input_of_size(size)], lowering.weights)
        agree(got, evaluate(program.with_sizes({"N": size}).module, [input_of_size(size)], program.weights))


def images_model(path: Path) -> Path:
    """Write a model of convolutions and pooling with a symbolic batch."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "k"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", c, h, h]) for name, c, h in (("x", 3, 24), ("y", 32, 1))
    )
    weights = {"w": np.linspace(-1, 1, 864, dtype=np.float32).reshape(32, 3, 3, 3), "k": np.resize(K, (32, 32, 3, 3)) / 9}
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(a, name) for name, a in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def load_kernels(size: int) -> np.ndarray:
    return np.random.default_rng(size).standard_normal((size, 3, 24, 24), dtype=np.float32)


@pytest.mark.parametrize(
    "target", ["cpu", pytest.param("opencl", marks=pytest.mark.skipif(not all_devices(), reason="no device"))]
)
def test_convolutions_and_windows(target: str, tmp_path: Path) -> None:
    """A batch of images, by direct and Winograd convolution, with strides that depend on the batch size."""
    file = images_model(tmp_path / "m.onnx")
    model = dlc.compile_model(file, target=target, cache=False)
    assert model.artifact is not None
    program = load_program(file)
    for size in (0, 1, 3, 5):
        (expected,) = evaluate(program.with_sizes({"N": size}).module, [load_kernels(size)], program.weights)
        np.testing.assert_allclose(np.asarray(model(load_kernels(size))["y"]), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("profile", ["opencl:gpu", "opencl:small"])
def test_a_dynamic_batch_with_padding_is_one_launch(profile: str, tmp_path: Path) -> None:
    program = load_program(images_model(tmp_path / "m.onnx"))
    lowering = Lowering(Compilation(program, OpenCL(profile), Options(num_threads=1, workers=1)))
    lowering.until("loops")
    assert all(len(emit_kernel(k, OPENCL_PROFILES[profile]).grids) == 1 for k in kernels_of(lowering.module))
    for size in (0, 1, 3):
        (expected,) = evaluate(program.with_sizes({"N": size}).module, [load_kernels(size)], program.weights)
        (got,) = evaluate(lowering.module, [load_kernels(size)], lowering.weights)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:generic"])
def test_depthwise_convolution_of_dynamic_images(target: str) -> None:
    """The kernel transposes the weights first, along static axes only."""
    source = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (uint8[N,2,H,W] x, uint8 z) => (int32[N,2,H,W] y) '
        "<uint8[2,1,1,1] w = {75, 86}> { y = ConvInteger<group = 2>(x, w, z) }"
    )
    model = dlc.compile_model(source, target=target, num_threads=1, cache=False)
    for shape in ((1, 2, 5, 5), (3, 2, 1, 40)):
        x = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
        expected = (x.astype(np.int32) - 132) * np.int32([75, 86]).reshape(2, 1, 1)
        np.testing.assert_array_equal(model(x, np.uint8(132))["y"], expected)


def test_ops_that_require_static_sizes_specialize() -> None:
    """Two functions of all elements, of which the result can store one: the other needs a buffer of symbolic size."""
    report = Report()
    model = compile(lowered(lambda x: ((e := dnp.exp(x)) + (t := dnp.tanh(x)) * e) / (e.sum() + (t * t).sum())), report=report)
    assert report.specialization_reason is not None
    for size in (2, 5):
        x = input_of_size(size)
        e, t = np.exp(x), np.tanh(x)
        np.testing.assert_allclose(model(x)["result"], (e + t * e) / (e.sum() + (t * t).sum()), 1e-5)


def test_an_index_out_of_bounds_of_a_symbolic_axis_is_reported() -> None:
    taken = dlc.jit(dynamic={"x": {0: "N"}})(lambda x, i: dnp.take(x, i, axis=0)).lower(input_of_size(2), np.array([0]))
    report = Report()
    model = compile(taken.program, report=report)
    assert report.dynamic_domain == "N in 1.."
    x = input_of_size(5)
    np.testing.assert_array_equal(model(x, np.array([-5]))["result"], x[:1])
    with pytest.raises(DlcError, match="index -6 is outside axis 0 of size 5"):
        model(x, np.array([-6]))


def test_a_cache_grows_token_by_token(tmp_path: Path) -> None:
    """One artifact serves every length of a decoder's KV cache, also without a compiler."""
    path = Path(__file__).parents[1] / "models" / "small" / "gpt2_tiny_decode_kv_dyn.onnx"
    compiled, program = dlc.compile_model(path, cache=False), load_program(path)
    compiled.save(tmp_path / "decoder.dlc")
    model = dlc.load(tmp_path / "decoder.dlc")
    past = {name: np.zeros((1, 4, 0, 32), np.float32) for name in ("past.0.k", "past.0.v", "past.1.k", "past.1.v")}
    calls, results = list[list[NDArray]](), list[dict[str, NDArray]]()
    for n in range(65):
        feeds = {"input_ids": np.array([[37 * n % 1000]]), "position_ids": np.array([[n]]), **past}
        got = {name: np.asarray(array) for name, array in model(feeds).items()}
        if n in (0, 1, 16, 64):
            agree(
                list(got.values()),
                evaluate(program.with_sizes({"past": n}).module, list(feeds.values()), program.weights),
            )
        calls.append(list(feeds.values()))
        results.append(got)
        past = {name: got[name.replace("past", "present")] for name in past}
    *_, alone = answers_alone(tmp_path / "decoder.dlc", calls)
    for there, here in zip(alone, results, strict=True):
        agree(list(there.values()), list(here.values()))


def test_long_formulas_of_transposed_matrices_are_vectorized() -> None:
    """Vectors have a symbolic stride."""
    function = dlc.jit(lambda x: dnp.exp(x).T + 1, dynamic={"x": {0: "N", 1: "M"}})
    program = function.lower(np.zeros((2, 3), np.float32)).program
    inputs = [np.random.default_rng(0).standard_normal(shape, dtype=np.float32) for shape in ((0, 2), (5, 3), (19, 40))]
    for module, weights in at_each_stage(program):
        for x in inputs:
            agree(evaluate(module, [x], weights), [np.exp(x).T + 1])
    assert "vector.transfer_read" in function.lower(inputs[0]).as_text("loops")


def test_short_rows_choose_their_tiles_once_per_task() -> None:
    function = dlc.jit(lambda x, y: x * 2 + y, dynamic={"x": {0: "N", 1: "M"}, "y": {0: "M"}})
    program = function.lower(np.zeros((2, 3), np.float32), np.zeros(3, np.float32)).program
    rng, module = np.random.default_rng(0), program.module
    shapes = [(0, 3), (2, 0), (5, 1), (70, 5), (33, 63), (3, 64), (34, 167), (2, 1031)]
    inputs = [(rng.standard_normal(s, dtype=np.float32), rng.standard_normal(s[1], dtype=np.float32)) for s in shapes]
    for module, weights in at_each_stage(program):
        for x, y in inputs:
            agree(evaluate(module, [x, y], weights), [x * 2 + y])
    branches = [op for op in module.walk() if isinstance(op, scf.IfOp)]
    assert branches and not any(isinstance(op.parent_op(), scf.ForOp) for op in branches)
    assert all(any(isinstance(op, scf.ForOp) for op in branch.walk()) for branch in branches)


def test_row_tiles_are_balanced() -> None:
    """Tiles of one to six rows; tiles of up to three use two accumulators; a second task from 19 rows on."""
    w = np.random.default_rng(0).standard_normal((10, 40)).astype(np.float32)
    product = dlc.jit(lambda x: x @ w, dynamic={"x": {0: "N"}}).lower(np.zeros((4, 10), np.float32)).compile()
    x = np.random.default_rng(1).standard_normal((40, 10)).astype(np.float32)
    for rows in range(41):
        (got,) = product(x[:rows]).values()
        np.testing.assert_allclose(got, x[:rows] @ w, rtol=1e-4, atol=1e-5)


def test_concurrent_calls_with_different_sizes() -> None:
    model = compile(lowered(attention), options=Options(num_threads=2))
    x = [input_of_size(size) for size in (3, 40, 17, 0)]
    expected, errors = [model(array)["result"] for array in x], list[AssertionError]()
    start = threading.Barrier(len(x))

    def call(first: int) -> None:
        start.wait()
        try:
            for k in range(first, first + 40):
                np.testing.assert_array_equal(model(x[k % len(x)])["result"], expected[k % len(x)])
        except AssertionError as error:
            errors.append(error)

    callers = [threading.Thread(target=call, args=(first,)) for first in range(len(x))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not errors


STEPS: tuple[Callable[[Any, int], Any], ...] = (
    lambda y, axis: softmax(y.swapaxes(axis, 1)).swapaxes(axis, 1),
    lambda y, axis: y - y.max(axis=axis, keepdims=True, initial=-9),
    lambda y, axis: dnp.tanh(y).swapaxes(0, 1) * 1.5,
    lambda y, axis: dnp.concatenate([y, y * 0.5], axis=axis),
    lambda y, axis: (y @ y.swapaxes(0, 1)) * 0.05,
    lambda y, axis: y / (1 + dnp.abs(y).sum(axis=axis, keepdims=True)),
    lambda y, axis: dnp.exp(y - y.max(axis=axis, keepdims=True, initial=-9)) * (y + y.min(axis=axis, keepdims=True, initial=9)),
)


def random_function(seed: int) -> Callable[[Any], Any]:
    """Return a random function of matrices with one or two symbolic sizes."""

    def function(x: Any) -> Any:
        draw = Random(seed)
        y, results = x if draw.random() < 0.5 else x.swapaxes(0, 1), list[Any]()
        for _ in range(draw.randint(2, 6)):
            axis = draw.choice([0, 1])
            y = draw.choice(STEPS)(y, axis)
            if draw.random() < 0.3:
                results.append(draw.choice([y, y.sum(axis=axis)]))
        return y, *results

    return function


@pytest.mark.parametrize("seed", range(8))
def test_random_programs(seed: int) -> None:
    program, report = lowered(random_function(seed)), Report()
    model = compile(program, report=report)
    assert report.specialization_reason is None
    for size in (0, 1, 15, 16, 17, 130):
        expected = evaluate(program.with_sizes({"N": size}).module, [input_of_size(size)], program.weights)
        for got, array in zip(model(input_of_size(size)).values(), expected, strict=True):
            np.testing.assert_allclose(got, array, rtol=1e-3, atol=1e-3 * np.abs(array).max(initial=1))


def test_a_batch_of_sentences() -> None:
    """Two symbolic sizes: masked attention over sequences, and a feed-forward layer."""

    def encoder(x: Any, mask: Any) -> Any:
        b, s = x.shape[:2]
        q = (x @ W[:, :24]).reshape(b, s, 4, 6).swapaxes(1, 2)
        bias = dnp.where(mask[:, None, None, :] > 0, 0.0, -1e9).astype(dnp.float32)
        y = x + (softmax(q @ q.swapaxes(2, 3) * 0.2 + bias) @ q).swapaxes(1, 2).reshape(b, s, 24)
        return (y - y.mean(axis=-1, keepdims=True)) @ W

    sizes = {"x": {0: "b", 1: "s"}, "mask": {0: "b", 1: "s"}}
    program = dlc.jit(dynamic=sizes)(encoder).lower(np.zeros((2, 8, 24), np.float32), np.zeros((2, 8), np.int64)).program
    report = Report()
    model = compile(program, report=report)
    assert report.specialization_reason is None
    for b, s in ((0, 3), (1, 1), (2, 7), (3, 16), (2, 33), (1, 130)):
        x = input_of_size(b * s).reshape(b, s, 24)
        mask = (np.arange(b * s).reshape(b, s) % 3 != 1).astype(np.int64)
        agree(list(model(x, mask).values()), evaluate(program.with_sizes({"b": b, "s": s}).module, [x, mask], program.weights))


def test_sizes_out_of_range_are_refused() -> None:
    model = compile(lowered(rows, "N:2..8"))
    assert model(input_of_size(8))["result"].shape == (8, 40)
    for size in (1, 9):
        with pytest.raises(ShapeError, match=rf"N = {size}; expected a size in the declared range 2\.\.8"):
            model(input_of_size(size))


def test_inputs_must_agree_on_a_size() -> None:
    @dlc.jit(dynamic={"x": {0: "N"}, "y": {0: "N"}})
    def f(x: Any, y: Any) -> Any:
        return x + y

    np.testing.assert_array_equal(f(input_of_size(3), input_of_size(3)), 2 * input_of_size(3))
    with pytest.raises(ShapeError, match="N = 3"):
        f(input_of_size(3), input_of_size(4))


def test_equal_kernels_of_different_sizes_are_shared() -> None:
    def f(x: Any) -> Any:
        return dnp.tanh(x.reshape(-1, 12)) @ W[:12], dnp.tanh(x.reshape(-1, 12) + 1) @ W[:12]

    report = Report()
    compile(lowered(f), report=report, options=Options(cache=False))
    assert sum(kernel.runs for kernel in report.kernels) > len(report.kernels)


@pytest.mark.parametrize(
    ("text", "expected"), [("N", None), ("N:1..32", SizeRange(1, 32)), ("N:4..", SizeRange(4)), ("N:7", SizeRange(7, 7))]
)
def test_ranges_are_parsed(text: str, expected: SizeRange | None) -> None:
    assert parse_size_and_range(text) == ("N", expected)


@pytest.mark.parametrize("text", ["N:5..2", "N:a..b"])
def test_invalid_ranges_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size_and_range(text)
    with pytest.raises(ShapeError, match=r"N:1\.\.32"):
        dlc.jit(dynamic={"x": {0: text}})(rows)


def test_representative_sizes_are_in_range() -> None:
    assert [SizeRange(*ends).representative for ends in ((), (16,), (1, 64), (3, 3), (0, 0))] == [4, 16, 8, 3, 1]


def test_headers_are_not_trusted(tmp_path: Path) -> None:
    """A corrupted header never makes a launch access memory outside its buffers."""
    artifact = compile(lowered(rows), options=Options(cache=False)).artifact
    assert isinstance(artifact, Artifact)
    header = json.loads(json.dumps(artifact.serialize(SectionWriter(), {})))
    assert header["ranges"] == {} and header["instructions"]
    x = input_of_size(4)
    host, kernels = artifact.host, {kernel.name: kernel.signature for kernel in artifact.kernels}
    for change in (
        {"regions": ((1,),) * len(host.regions)},
        {"instructions": tuple(Launch.of(i.kernel, i.arguments, (99,), kernels) for i in host.launches)},
    ):
        with pytest.raises(ModelError):
            replace(artifact, host=replace(host, **cast(Any, change))).program().run([x])


def test_undecidable_error_is_unsupported_error() -> None:
    with pytest.raises(UndecidableError):
        int(lowered(rows).inputs[0].shape[0])


HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,5] x) => (float[A,B] y) '


@pytest.mark.parametrize(
    ("body", "fits", "others"),
    [
        ("<float[7,1] k = {1,2,3,4,5,6,7}> { y = Concat<axis = 1>(x, k) }", 7, (0, 1, 6, 8, 100)),
        ("<int64[2] k = {7,5}> { y = Expand(x, k) }", 1, (0, 2, 8)),
        ("<int64[2] k = {3,4}> { y, z = Split<axis = 0>(x, k) }", 7, (0, 1)),
        ("<int64[2] k = {7,5}> { y = Reshape(x, k) }", 7, (0, 6, 8)),
    ],
)
def test_programs_valid_for_some_sizes_are_compiled_for_those(
    body: str, fits: int, others: tuple[int, ...], tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + body), path)
    model = dlc.compile_model(path, cache=False, num_threads=1)
    x = np.arange(fits * 5, dtype=np.float32).reshape(fits, 5)
    known = dlc.compile_model(path, cache=False, num_threads=1, input_shapes={"x": x.shape})
    np.testing.assert_array_equal(model(x)["y"], known(x)["y"])
    for n in others:
        with pytest.raises(ShapeError, match=f"N = {n}"):
            model(np.ones((n, 5), np.float32))


def test_sizes_that_must_be_equal() -> None:
    joined = dlc.jit(dynamic={"x": {0: "N"}, "y": {0: "M"}}, cache=False)(lambda x, y: dnp.concatenate([x, y], axis=1))
    assert np.asarray(joined(np.ones((3, 5), np.float32), np.ones((3, 2), np.float32))).shape == (3, 7)
    with pytest.raises(ShapeError, match=r"shapes \(3000, 5\), \(4, 5\) differ"):
        joined(np.ones((3000, 5), np.float32), np.ones((4, 5), np.float32))


def test_sizes_computed_from_negative_values() -> None:
    halves = '<ir_version: 8, opset_import: ["" : 17]> g (float[N,5] x) => (float[A,B] y, float[C,D] z) { y, z = Split<axis = 0>(x) }'
    imported = import_model(onnx.parser.parse_model(halves))
    run = compile(Program(imported.module, imported.weights), options=Options(cache=False, num_threads=1)).run_unchecked
    for n in (0, 2, 4, 14):
        x = np.arange(n * 5, dtype=np.float32).reshape(n, 5)
        np.testing.assert_array_equal(np.concatenate([np.asarray(part) for part in run([x])]), x)


def test_negative_indices_on_a_symbolic_axis() -> None:
    ends = dlc.jit(dynamic={"x": {0: "N"}}, cache=False)(lambda x: x[0] + 2 * x[-1] + x[::-1][2])
    for n in (3, 8):
        x = input_of_size(n)
        np.testing.assert_allclose(ends(x), x[0] + 2 * x[-1] + x[-3], rtol=1e-5)
    with pytest.raises(DlcError, match=r"index 2 is out of bounds for axis 0 of shape \(2, 24\)"):
        ends(input_of_size(2))


def test_functions_that_need_static_sizes_are_specialized() -> None:
    mean = dlc.jit(dynamic={"x": {0: "N:1..8"}}, cache=False)(lambda x: x.sum(0) / len(x) + x[:1].sum(0) + x[-1:].sum(0))
    for n in (1, 3, 8):
        x = input_of_size(n)
        if n == 3:  # Sizes 0 and 1 always have separate programs.
            with pytest.warns(UserWarning, match="is specialized per shape"):
                got = mean(x)
        else:
            got = mean(x)
        np.testing.assert_allclose(got, x.mean(0) + x[0] + x[-1], rtol=1e-5)
    with pytest.raises(ShapeError, match=r"N = 9; expected a size in the declared range 1\.\.8"):
        mean(input_of_size(9))
