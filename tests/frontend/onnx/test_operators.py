"""Operators with rarely used attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dlc
from dlc.errors import DlcError
from dlc.frontend.onnx import import_model
from tests.frontend.onnx.build import model, run

NUMBERS = np.random.default_rng(0)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        (",->", [(), ()]),
        ("ab,->", [(2, 3), ()]),
        ("...a,...a->...", [(1, 3), (4, 3)]),
        ("...ab,...bc->...ac", [(2, 1, 2, 3), (5, 3, 4)]),
        ("a...,...bb->b...a", [(2, 3, 4), (4, 2, 2)]),
        ("a...,b->ab...", [(2,), (3,)]),
        ("ab,ab->a", [(1, 3), (4, 3)]),
    ],
)
def test_einsum_broadcasts(equation: str, shapes: list[tuple[int, ...]], target: str) -> None:
    """An ellipsis stands for the remaining axes of its operand, aligned at the last one; size 1 broadcasts."""
    operands = [NUMBERS.standard_normal(s).astype(np.float32) for s in shapes]
    source = model(
        [helper.make_node("Einsum", ["x", "y"], ["z"], equation=equation)], dict(zip("xy", shapes, strict=True)), ["z"]
    )
    got = dlc.compile_model(source, target=target, num_threads=1, cache=False)(*operands)["z"]
    np.testing.assert_allclose(got, np.einsum(equation, *operands), rtol=1e-5, atol=1e-6)


def test_squeeze_without_axes_depends_on_symbolic_sizes() -> None:
    source = model([helper.make_node("Squeeze", ["x"], ["y"])], {"x": ["n", 1, 3]}, ["y"])
    compiled = dlc.compile_model(source, target="reference", cache=False)
    for n in (2, 1, 0):
        x = NUMBERS.standard_normal((n, 1, 3)).astype(np.float32)
        np.testing.assert_array_equal(compiled(x)["y"], x.squeeze(), strict=True)


def test_squeeze_without_axes_of_a_data_dependent_size_of_one() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Squeeze", ["places"], ["y"], name="flat")]
    compiled = dlc.compile_model(model(nodes, {"x": ["n"]}, ["y"]), target="reference", cache=False)
    np.testing.assert_array_equal(compiled(np.float32([1, 0, 1]))["y"], [0, 2], strict=True)
    with pytest.raises(dlc.DlcError, match=r"flat.*a data-dependent size 1"):
        compiled(np.float32([0, 0, 1]))


@pytest.mark.parametrize("aligned", [0, 1])
def test_cubic_grid_sampling_pads_each_tap(aligned: int) -> None:
    """Like PyTorch and ONNX Runtime: positions are not clamped first."""
    x, at = NUMBERS.standard_normal(5).astype(np.float32), np.float32([-1.7, -1.1, 0.3, 1.2, 1.9])
    places = (at + 1) / 2 * 4 if aligned else (at + 1) / 2 * 5 - 0.5
    base = np.floor(places).astype(int)
    distances = np.abs(places - base - np.arange(-1, 3)[:, np.newaxis])
    near = 1.25 * distances**3 - 2.25 * distances**2 + 1
    far = -0.75 * (distances**3 - 5 * distances**2 + 8 * distances - 4)
    taps = x[np.clip(base + np.arange(-1, 3)[:, np.newaxis], 0, 4)]
    expected = (np.where(distances <= 1, near, far) * taps).sum(0)
    settings: dict[str, Any] = {"mode": "cubic", "padding_mode": "border", "align_corners": aligned}
    source = model(
        [helper.make_node("GridSample", ["x", "grid"], ["y"], **settings)], {"x": [1, 1, 5], "grid": [1, 5, 1]}, ["y"]
    )
    got = run(import_model(source), {"x": x.reshape(1, 1, 5), "grid": at.reshape(1, 5, 1)})["y"]
    np.testing.assert_allclose(got.reshape(-1), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("mode", "antialias"), [("cubic", 0), ("cubic", 1), ("linear", 1)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_resized_integers_are_rounded_and_saturated(mode: str, antialias: int, dtype: Any) -> None:
    x = NUMBERS.choice([np.iinfo(dtype).min, np.iinfo(dtype).max, 3], (1, 1, 6, 7)).astype(dtype)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, antialias=antialias)
    scales = {"s": np.float32([1, 1, 1.7, 0.6])}

    def resized(to: int, x: Any) -> Any:
        return run(
            import_model(model([node], {"x": [1, 1, 6, 7]}, ["y"], weights=scales, dtypes={"x": to, "y": to})), {"x": x}
        )["y"]

    got = resized(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), x)
    expected = np.clip(np.round(resized(TensorProto.FLOAT, x.astype(np.float32))), np.iinfo(dtype).min, np.iinfo(dtype).max)
    np.testing.assert_array_equal(got, expected.astype(dtype))


@pytest.mark.parametrize("auto_pad", ["VALID", "NOTSET"])
def test_padding_of_ceil_mode_is_excluded_from_averages(auto_pad: str) -> None:
    settings: dict[str, Any] = {"kernel_shape": [3], "strides": [3], "ceil_mode": 1, "count_include_pad": 1}
    source = model([helper.make_node("AveragePool", ["x"], ["y"], auto_pad=auto_pad, **settings)], {"x": [1, 1, 5]}, ["y"])
    got = run(import_model(source), {"x": np.float32([[[1, 2, 3, 4, 5]]])})["y"]
    np.testing.assert_allclose(got, [[[2, 4.5]]])


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_of_one_element(axis: int) -> None:
    codes, scale = NUMBERS.integers(-9, 9, (3, 4)).astype(np.int8), NUMBERS.uniform(0.1, 1, (3, 4)).astype(np.float32)
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=axis, block_size=1)
    source = model([node], {"x": [3, 4]}, ["y"], weights={"s": scale}, dtypes={"x": TensorProto.INT8, "y": TensorProto.FLOAT})
    np.testing.assert_allclose(run(import_model(source), {"x": codes})["y"], codes * scale, rtol=1e-6)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(("axis", "size", "block"), [(0, 5, 2), (1, 7, 3), (1, 4, 9)])
def test_a_smaller_last_block(axis: int, size: int, block: int, target: str) -> None:
    shape = tuple(size if a == axis else 3 for a in range(2))
    blocks = tuple(-(-size // block) if a == axis else 3 for a in range(2))
    x = NUMBERS.standard_normal(shape).astype(np.float32)
    weights = {"s": NUMBERS.uniform(0.1, 1, blocks).astype(np.float32), "z": NUMBERS.integers(-3, 4, blocks).astype(np.int8)}
    settings = {"axis": axis, "block_size": block}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **settings),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **settings),
    ]
    source = model(nodes, {"x": shape}, ["q", "y"], weights=weights, dtypes={"q": TensorProto.INT8})
    got = dlc.compile_model(source, target=target, num_threads=1, cache=False)(x)
    scale, zero = (w.repeat(block, axis)[: shape[0], : shape[1]] for w in weights.values())
    codes = np.clip(np.rint(x / scale) + zero, -128, 127)
    np.testing.assert_array_equal(got["q"], codes.astype(np.int8), strict=True)
    np.testing.assert_allclose(got["y"], (codes - zero) * scale, rtol=1e-6)


def test_crop_and_resize_boundary_is_inside() -> None:
    """-0.1 · 5 + 0.5 is 0 in f32, but below 0 in f64."""
    settings = {"mode": "nearest", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -2.0}
    node = helper.make_node("Resize", ["x", "roi", "", "sizes"], ["y"], **settings)
    source = model([node], {"x": [6]}, ["y"], weights={"roi": np.float32([-0.1, 1]), "sizes": np.int64([12])})
    got = run(import_model(source), {"x": np.arange(6, dtype=np.float32)})["y"]
    np.testing.assert_array_equal(got, [-2, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("sizes", "axes"), [([4, 3, 7], [0, 1, 2]), ([2, 6], [-1, 0]), ([5], [1])])
def test_center_crop_pad(sizes: list[int], axes: list[int], dtype: Any) -> None:
    """The extra element is on the left if the difference is odd."""
    x = expected = NUMBERS.standard_normal((5, 4, 3)).astype(np.float32)
    for axis, size in zip(axes, sizes, strict=True):
        more, n = size - x.shape[axis], x.shape[axis]
        by = [(max(more, 0) // 2, max(more, 0) - max(more, 0) // 2) if a == axis % 3 else (0, 0) for a in range(3)]
        first = max(-more, 0) // 2
        expected = np.pad(expected.take(np.arange(first, min(n, first + size)), axis), by)
    node = helper.make_node("CenterCropPad", ["x", "sizes"], ["y"], **({"axes": axes} if len(axes) < 3 else {}))
    source = model([node], {"x": [5, 4, 3]}, ["y"], weights={"sizes": np.asarray(sizes, dtype)})
    np.testing.assert_array_equal(run(import_model(source), {"x": x})["y"], expected)


BODY = helper.make_graph(
    [helper.make_node("Add", ["s", "row"], ["next"]), helper.make_node("Neg", ["e"], ["made"])],
    "body",
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("s", "row", "e")],
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("next", "made")],
)
# Nodes, and the shapes of their inputs: concrete, and symbolic in the file.
BESIDE_KNOWN: dict[str, tuple[dict[str, Any], list[tuple[tuple[int, ...], list[int | str]]]]] = {
    "Conv": ({"kernel_shape": [3]}, [((1, 2, 5), [1, 2, "n"]), ((4, 2, 3), ["c", "d", "k"])]),
    "ConvTranspose": ({"kernel_shape": [3]}, [((1, 2, 5), [1, 2, 5]), ((2, 4, 3), [2, 4, "k"])]),
    "GRU": ({"hidden_size": 3}, [((2, 1, 5), [2, 1, 5]), ((1, 9, 5), [1, "g", 5]), ((1, 9, 3), ["one", 9, 3])]),
    "BatchNormalization": ({"epsilon": 99.0}, [((2, 3, 4), [2, "c", 4]), *[((3,), [3])] * 3, ((3,), ["v"])]),
    "LayerNormalization": ({"axis": 1}, [((2, 3, 1), [2, "n", 1]), ((3, 1), [3, "one"]), ((3, 1), ["b", 1])]),
    "RMSNormalization": ({}, [((2, 3), [2, "n"]), ((3,), [3])]),
    "PRelu": ({}, [((4, 7, 2), [4, "n", 2]), ((1, 7, 1), [1, 7, 1])]),
    "GridSample": ({}, [((1, 2, 4, 5), [1, 2, 4, 5]), ((1, 3, 2, 2), [1, 3, "n", "two"])]),
    "Scan": ({"body": BODY, "num_scan_inputs": 2}, [((3,), [3]), ((4, 3), ["n", "m"]), ((4, 2), [4, 2])]),
}


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("op", BESIDE_KNOWN)
def test_static_requirements_of_symbolic_dimensions_are_checked_at_run_time(op: str, target: str) -> None:
    """A call determines whether the size is valid."""
    settings, shapes = BESIDE_KNOWN[op]
    arrays = {f"x{k}": NUMBERS.standard_normal(shape).astype(np.float32) for k, (shape, _) in enumerate(shapes)}
    node = helper.make_node(op, list(arrays), ["y", "more"] if op in ("GRU", "Scan") else ["y"], **settings)

    def called(declared: list[Any]) -> Any:
        source = model([node], dict(zip(arrays, declared, strict=True)), list(node.output), opset=23)
        return dlc.compile_model(source, target=target, num_threads=1, cache=False)(arrays)

    got, expected = called([given for _, given in shapes]), called([shape for shape, _ in shapes])
    for name in node.output:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-6)


def test_indices_and_lengths_along_symbolic_axes() -> None:
    nodes = [
        helper.make_node("GatherND", ["x", "places"], ["taken"]),
        helper.make_node("ReverseSequence", ["x", "lengths"], ["turned"], batch_axis=0, time_axis=1),
        helper.make_node("Slice", ["x", "begin", "end", "one"], ["none"]),
    ]
    inputs: dict[str, Any] = {"x": ["n", "m"], "places": [3, "d"], "lengths": [4]}
    dtypes = {"places": TensorProto.INT64, "lengths": TensorProto.INT64, "taken": TensorProto.FLOAT}
    weights = {"begin": np.int64([-3]), "end": np.int64([-6]), "one": np.int64([1])}
    compiled = dlc.compile_model(
        model(nodes, inputs, ["taken", "turned", "none"], dtypes=dtypes, weights=weights), target="reference", cache=False
    )
    x = NUMBERS.standard_normal((4, 5)).astype(np.float32)
    got = compiled(x, np.int64([[0, 1], [3, 4], [2, 0]]), np.int64([1, 2, 5, 3]))
    np.testing.assert_array_equal(got["taken"], x[[0, 3, 2], [1, 4, 0]])
    np.testing.assert_array_equal(got["turned"], [[*row[:k][::-1], *row[k:]] for row, k in zip(x, (1, 2, 5, 3), strict=True)])
    assert got["none"].shape == (4, 0)


@pytest.mark.parametrize("count", [3, 9])
def test_slices_assumed_in_bounds_of_a_symbolic_axis(count: int) -> None:
    """A call with sizes that violate the assumption is specialized."""
    nodes = [
        helper.make_node("Slice", ["x", "zero", "nine"], ["cut"]),
        helper.make_node("Expand", ["cut", "shape"], ["y"]),
    ]
    weights = {"zero": np.int64([0]), "nine": np.int64([9]), "shape": np.int64([2, count])}
    compiled = dlc.compile_model(model(nodes, {"x": ["n"]}, ["y"], weights=weights), target="reference", cache=False)
    x = np.arange(count, dtype=np.float32)
    np.testing.assert_array_equal(compiled(x)["y"], [x, x])


def test_contradictions_under_concrete_shapes() -> None:
    nodes = [
        helper.make_node("Slice", ["x", "zero", "nine"], ["cut"]),
        helper.make_node("Expand", ["cut", "shape"], ["y"]),
    ]
    weights = {"zero": np.int64([0]), "nine": np.int64([9]), "shape": np.int64([2, 3])}
    compiled = dlc.compile_model(model(nodes, {"x": ["n"]}, ["y"], weights=weights), target="reference", cache=False)
    with pytest.raises(DlcError, match=r"Expand.*4 against 3"):
        compiled(np.ones(4, np.float32))


def test_a_size_times_a_large_number_overflows() -> None:
    nodes = [helper.make_node("Size", ["x"], ["size"]), helper.make_node("Mul", ["size", "least"], ["y"])]
    source = model(nodes, {"x": ["n"]}, ["y"], dtypes={"y": TensorProto.INT64}, weights={"least": np.int64(-(1 << 63))})
    compiled = dlc.compile_model(source, target="reference", cache=False)
    assert [int(compiled(np.ones(n, np.float32))["y"]) for n in (2, 3)] == [0, -(1 << 63)]


def test_the_largest_integer_ends_a_symbolic_slice() -> None:
    nodes = [
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Sub", ["size", "one"], ["last"]),
        helper.make_node("Concat", ["last", "largest"], ["ends"], axis=0),
        helper.make_node("Slice", ["y", "zeros", "ends"], ["cut"]),
    ]
    weights = {"one": np.int64([1]), "largest": np.int64([(1 << 63) - 1]), "zeros": np.int64([0, 0])}
    (result,) = import_model(model(nodes, {"x": ["n"], "y": ["n", "m"]}, ["cut"], weights=weights)).outputs
    assert [str(size) for size in result.shape] == ["n - 1", "m"]


def test_bounds_and_matrices_of_symbolic_sizes() -> None:
    nodes = [helper.make_node("RoiAlign", ["x", "r", "i"], ["y"]), helper.make_node("AffineGrid", ["m", "s"], ["g"])]
    inputs: dict[str, Any] = {"x": [1, 1, 4, 4], "r": ["r", "four"], "m": ["n", "two", "three"]}
    source = model(nodes, inputs, ["y", "g"], weights={"i": np.int64([0]), "s": np.int64([1, 1, 2, 2])})
    compiled = dlc.compile_model(source, target="reference", cache=False)
    got = compiled(np.ones((1, 1, 4, 4), np.float32), np.float32([[0, 0, 3, 3]]), np.zeros((1, 2, 3), np.float32))
    np.testing.assert_allclose(got["y"], np.ones((1, 1, 1, 1)), rtol=1e-6)
    assert got["g"].shape == (1, 2, 2, 2)
