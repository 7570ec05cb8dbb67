"""Edge cases of operators and files: empty reductions, unbounded sizes, symlink loops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import dlc
from dlc.frontend.emitter import Emitter
from dlc.frontend.onnx import import_model
from dlc.ir import Block, i8
from dlc.weights import WeightStore
from tests.frontend.onnx.build import model, run

X = np.float32([[1, 2], [3, 4]])
WITHOUT_AXES = {
    "ReduceL1": lambda x: np.abs(x), "ReduceL2": lambda x: np.abs(x), "ReduceLogSum": np.log, "ReduceSumSquare": np.square,
    "ReduceLogSumExp": lambda x: x, "ReduceSum": lambda x: x, "ReduceMean": lambda x: x, "ReduceProd": lambda x: x,
    "ReduceMax": lambda x: x, "ReduceMin": lambda x: x,
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_AXES)
def test_reductions_without_axes_are_elementwise(name: str) -> None:
    node = helper.make_node(name, ["x"], ["y"], noop_with_empty_axes=1)
    x = X if name == "ReduceLogSum" else X - 2.5
    got = run(import_model(model([node], {"x": [2, 2]}, ["y"])), {"x": x})["y"]
    np.testing.assert_allclose(got, WITHOUT_AXES[name](x), rtol=1e-6)


@pytest.mark.parametrize(("name", "expected"), [("ReduceL2", [5, 13]), ("ReduceLogSum", [1, 2]), ("ReduceLogSumExp", [4, 12])])
def test_roots_and_logarithms_of_integers_are_truncated(name: str, expected: list[int]) -> None:
    node = helper.make_node(name, ["x", "axes"], ["y"], keepdims=0)
    source = model([node], {"x": [2, 2]}, ["y"], weights={"axes": np.int64([1])}, dtypes={"x": TensorProto.INT32})
    np.testing.assert_array_equal(run(import_model(source), {"x": np.int32([[3, 4], [5, 12]])})["y"], np.int32(expected))


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("sizes", [(0, 3), (2, 0, 0), (2, 0)])
@pytest.mark.parametrize("name", ["ArgMax", "ArgMin", "Hardmax"])
def test_argmax_of_empty_tensors(name: str, sizes: tuple[int, ...], target: str) -> None:
    """An empty axis has no maximum: its index is an error."""
    x, axis = np.zeros(sizes, np.float32), sizes.index(0)
    source = model([helper.make_node(name, ["x"], ["y"], axis=axis)], {"x": [f"n{k}" for k in range(x.ndim)]}, ["y"])
    compiled = dlc.compile_model(source, target=target, num_threads=1, cache=False)
    found = (*sizes[:axis], 1, *sizes[axis + 1 :])
    if name != "Hardmax" and 0 not in found:
        with pytest.raises(dlc.ShapeError, match="has no elements"):
            compiled(x)
        return
    got = compiled(x)["y"]
    assert (got.shape, got.dtype) == ((sizes, np.float32) if name == "Hardmax" else (found, np.int64))


@pytest.mark.parametrize("rows", [0, 3])
def test_top_k_of_empty_tensors(rows: int) -> None:
    node = helper.make_node("Compress", ["x", "mask"], ["y"], axis=0)
    source = model([node], {"x": [rows, 2], "mask": ["m"]}, ["y"], dtypes={"mask": TensorProto.BOOL})
    compiled = dlc.compile_model(source, num_threads=1, cache=False)
    assert compiled(np.ones((rows, 2), np.float32), np.zeros(rows, bool))["y"].shape == (0, 2)


@pytest.mark.parametrize("scale", [np.inf, np.nan])
def test_scales_that_are_not_finite_are_refused(scale: float) -> None:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], name="zoom", mode="nearest")
    source = model([node], {"x": [1, 1, 2, 2]}, ["y"], weights={"s": np.float32([1, 1, scale, 2])})
    with pytest.raises(dlc.ModelError, match=r"zoom.*not finite"):
        import_model(source)


@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resizing_to_zero_pixels(mode: str, transform: str) -> None:
    settings = {"mode": mode, "coordinate_transformation_mode": transform}
    for operands, numbers in ((["s"], np.float32([1, 1, 0.5, 2])), (["", "s"], np.int64([1, 1, 0, 8]))):
        node = helper.make_node("Resize", ["x", "", *operands], ["y"], **settings)
        source = model([node], {"x": [1, 1, 1, 4]}, ["y"], weights={"s": numbers})
        assert run(import_model(source), {"x": np.ones((1, 1, 1, 4), np.float32)})["y"].shape == (1, 1, 0, 8)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_with_adaptive_sampling(mode: str) -> None:
    """A bin has as many samples as elements; an inverted region has none."""
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 11)).astype(np.float32)
    regions = np.float32([[1.2, 0.4, 2, 1.1], [0, 0, 5.5, 3.7], [-2, 1, 6.9, 6.2], [5, 5, 3, 2]])
    own = np.int64([1, 0, 1, 0])

    def aligned(ratio: int, some: slice) -> np.ndarray[Any, Any]:
        sizes = {"output_height": 2, "output_width": 3, "sampling_ratio": ratio}
        node = helper.make_node("RoiAlign", ["x", "r", "b"], ["y"], mode=mode, **sizes)
        feeds = {"x": x, "r": regions[some], "b": own[some]}
        source = model([node], {n: a.shape for n, a in feeds.items()}, ["y"], dtypes={"b": TensorProto.INT64}, opset=16)
        return run(import_model(source), feeds)["y"]

    got = aligned(0, slice(None))
    for k, ratio in enumerate([1, 2, 3]):
        np.testing.assert_allclose(got[k : k + 1], aligned(ratio, slice(k, k + 1)), atol=1e-5)
    assert not got[3].any() and aligned(0, slice(0, 0)).shape == (0, 3, 2, 3)


def test_max_roi_pool() -> None:
    """Halves are rounded away from 0; bins outside of the image are empty and give 0."""
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 8)).astype(np.float32)
    rois = np.float32([[0, -3, 0, 10, 9], [1, 3, 5, 14, 10], [1, 5, 5, 4, 4], [0, 30, 2, 40, 9]])
    node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[3, 2], spatial_scale=0.5)
    got = run(import_model(model([node], {"x": x.shape, "r": rois.shape}, ["y"])), {"x": x, "r": rois})["y"]
    # Rows and columns of the bins: [-2, 5] × [0, 5], [2, 7] × [3, 5], one element, none.
    spans = [([(0, 2), (2, 4), (4, 6)], [(0, 2), (2, 6)]), ([(3, 4), (4, 5), (5, 6)], [(2, 5), (5, 8)])]
    for k, (rows, columns) in enumerate(spans):
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                np.testing.assert_array_equal(got[k, :, i, j], x[k, :, top:bottom, left:right].max((1, 2)))
    np.testing.assert_array_equal(got[2], np.broadcast_to(x[1, :, 3:4, 3:4], (3, 3, 2)))
    assert not got[3].any()


def test_shrink_of_integers_computes_in_floats() -> None:
    node = helper.make_node("Shrink", ["x"], ["y"], bias=0.5, lambd=1.5)
    source = model([node], {"x": [4]}, ["y"], dtypes={"x": TensorProto.INT8, "y": TensorProto.INT8})
    # 80 - 0.5 and -80 + 0.5, truncated; 1 is within the threshold 1.5.
    assert run(import_model(source), {"x": np.int8([80, -80, 1, 2])})["y"].tolist() == [79, -79, 0, 1]


def test_attribute_defaults_are_f32() -> None:
    source = model([helper.make_node("HardSigmoid", ["x"], ["y"])], {"x": [1]}, ["y"], dtypes={"x": 11, "y": 11})
    assert run(import_model(source), {"x": np.float64([1])})["y"] == float(np.float32(0.2)) + 0.5


IN_ONE_ROUNDING = {
    "Mean": helper.make_node("Mean", ["x", "x", "x"], ["y"]),
    "AveragePool": helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[8, 8]),
    "LpPool": helper.make_node("LpPool", ["x"], ["y"], kernel_shape=[1, 1], p=2),
    "LpNormalization": helper.make_node("LpNormalization", ["x"], ["y"], axis=3),
    "InstanceNormalization": helper.make_node("InstanceNormalization", ["x", "one", "one"], ["y"]),
}


@pytest.mark.parametrize("name", IN_ONE_ROUNDING)
def test_composite_operators_round_half_precision_once(name: str) -> None:
    """Sums of f16 exceed its range, means do not."""
    x = (30000 + 100 * np.random.default_rng(0).standard_normal((1, 1, 8, 8))).astype(np.float16)

    def made(dtype: type) -> Any:
        types = {"x": helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), "y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}
        source = model([IN_ONE_ROUNDING[name]], {"x": [1, 1, 8, 8]}, ["y"], weights={"one": np.ones(1, dtype)}, dtypes=types)
        return run(import_model(source), {"x": x.astype(dtype)})["y"]

    np.testing.assert_array_equal(made(np.float16), made(np.float32).astype(np.float16))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_scaled_half_precision_product_is_rounded_once(target: str) -> None:
    """A product that exceeds the range of f16, half of which does not."""
    gemm = helper.make_node("Gemm", ["a", "b", "c"], ["y"], alpha=0.5, beta=2.0)
    weights = {"b": np.float16([[300]]), "c": np.float16([16])}
    source = model([gemm], {"a": [1, 1]}, ["y"], weights=weights, dtypes={"a": TensorProto.FLOAT16, "y": TensorProto.FLOAT16})
    got = dlc.compile_model(source, target=target)(np.float16([[300]]))["y"]
    np.testing.assert_array_equal(got, np.float16([[45032]]))


SCALE_2 = {"s": np.float32([1, 2])}
CROP = {"roi": np.float32([0, -1, 1, 2]), "s": np.float32([1, 2])}


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("op", "opset", "weights", "settings", "expected"),
    [
        # Not in the reference evaluator of onnx; by ONNX Runtime's kernels, which truncate.
        ("Resize", 10, SCALE_2, {"mode": "linear"}, [[1, 2, 4, 4], [-3, 0, 2, 2]]),
        ("Upsample", 9, SCALE_2, {"mode": "linear"}, [[1, 2, 4, 4], [-3, 0, 2, 2]]),
        (
            "Resize",
            13,
            CROP,
            {"mode": "nearest", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 2.5},
            None,
        ),
        ("Gemm", 13, {"b": np.int32([[1, 2], [3, 4]])}, {"alpha": 0.5}, None),
        ("Gemm", 13, {"b": np.int32([[1, 2], [3, 4]]), "c": np.int32([1, -3])}, {"alpha": 0.5, "beta": 0.75}, None),
        ("Gemm", 13, {"b": np.int32([[1, 2], [3, 4]]), "c": np.int32([1, -3])}, {"alpha": 2.0, "beta": -3.0}, None),
        ("Shrink", 13, {}, {"lambd": 1.5, "bias": 0.75}, None),
        ("Binarizer", 13, {}, {"threshold": -0.5, "domain": "ai.onnx.ml"}, [[1, 1], [0, 1]]),
    ],
)
def test_fractions_on_integers(
    op: str, opset: int, weights: dict[str, Any], settings: dict[str, Any], expected: Any, target: str
) -> None:
    x = np.int32([[1, 4], [-3, 2]])
    node = helper.make_node(op, ["x", *weights], ["y"], **settings)
    dtypes = {"x": TensorProto.INT32, "y": TensorProto.INT32}
    source = model([node], {"x": [2, 2]}, ["y"], weights=weights, dtypes=dtypes, opset=opset)
    if expected is None:
        (expected,) = ReferenceEvaluator(source).run(None, {"x": x})
    np.testing.assert_array_equal(dlc.compile_model(source, target=target)(x)["y"], expected)


def test_a_lossy_constant_is_refused() -> None:
    emit = Emitter(Block(), WeightStore())
    for number in (0.5, 300, -129, float("nan")):
        with pytest.raises(dlc.DTypeError, match="is not representable in int8"):
            emit.scalar(number, i8)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64", "float32"])
def test_one_hot_of_more_classes_than_the_indices_represent(dtype: str, target: str) -> None:
    node = helper.make_node("OneHot", ["i", "depth", "values"], ["y"])
    weights = {"depth": np.int64([300]), "values": np.int32([2, 5])}
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    source = model([node], {"i": [4]}, ["y"], weights=weights, dtypes={"i": element, "y": TensorProto.INT32})
    indices = np.array([0, 44, 127, 3 if dtype[0] == "u" else -1], dtype)
    expected = np.where(np.arange(300) == indices[:, None].astype(int) % 300, 5, 2)
    np.testing.assert_array_equal(dlc.compile_model(source, target=target)(indices)["y"], expected)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("bounds", [(-(2**63), 2**63 - 1, 2**62), (2**63 - 1, -(2**63), -(2**63)), (5, 5, 1), (7, 3, 2)])
def test_range_of_a_distance_beyond_int64(bounds: tuple[int, int, int], target: str) -> None:
    names = ["a", "b", "c"]
    dtypes = {name: TensorProto.INT64 for name in (*names, "y")}
    source = model([helper.make_node("Range", names, ["y"])], {name: [] for name in names}, ["y"], dtypes=dtypes)
    got = dlc.compile_model(source, target=target)(*map(np.int64, bounds))["y"]
    np.testing.assert_array_equal(got, list(range(*bounds)))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_results_larger_than_memory_are_refused(target: str, tmp_path: Path) -> None:
    node = helper.make_node("Range", ["a", "b", "c"], ["y"])
    weights = {"a": np.int64(0), "b": np.int64(1 << 44), "c": np.int64(1)}
    path = tmp_path / "model.onnx"
    onnx.save(model([node], {"x": [1]}, ["y"], weights=weights, dtypes={"y": TensorProto.INT64}), path)
    with pytest.raises(dlc.DeviceError, match=r"dl.iota: not enough memory"):
        dlc.compile_model(path, target=target)(x=np.zeros(1, np.float32))


def test_external_data_behind_a_symlink_loop_is_refused(tmp_path: Path) -> None:
    source = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2, 2]}, ["y"], weights={"w": X})
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").symlink_to("v.bin")
    (tmp_path / "v.bin").symlink_to("w.bin")
    with pytest.raises(dlc.ModelError, match=r"w\.bin"):
        dlc.compile_model(tmp_path / "m.onnx", target="reference")


def test_a_future_opset_warns() -> None:
    source = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 2]}, ["y"], opset=99)
    with pytest.warns(UserWarning, match="opset 99 is newer"):
        import_model(source)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_infinities_do_not_leak_in_a_transposed_convolution(target: str, tmp_path: Path) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[4])
    path = tmp_path / "model.onnx"
    onnx.save(model([node], {"x": [1, 1, 3]}, ["y"], weights={"w": np.float32([[[1, 2]]])}), path)
    (y,) = dlc.compile_model(path, target=target)(x=np.float32([[[np.nan, np.inf, 1]]])).values()
    np.testing.assert_array_equal(y, np.float32([[[np.nan, np.nan, 0, 0, np.inf, np.inf, 0, 0, 1, 2]]]))


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_convolution_longer_than_its_terms_is_extended_at_its_end(auto_pad: str) -> None:
    attributes = {"strides": [3], "output_shape": [9], "auto_pad": auto_pad}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)
    graph = import_model(model([node], {"x": [1, 1, 3]}, ["y"], weights={"w": np.float32([[[2]]])}))
    y = run(graph, {"x": np.float32([[[1, 2, 3]]])})["y"]
    np.testing.assert_array_equal(y, np.float32([[[2, 0, 0, 4, 0, 0, 6, 0, 0]]]))


SPARSE = np.float32([[0, 0, 5], [0, -2, 0]])


@pytest.mark.parametrize("indices", [[2, 4], [[0, 2], [1, 1]]])
def test_a_sparse_initializer(indices: Any) -> None:
    source = model([helper.make_node("Mul", ["x", "s"], ["y"])], {"x": [2, 3]}, ["y"])
    source.graph.sparse_initializer.append(sparse([5, -2], indices))
    np.testing.assert_array_equal(run(import_model(source), {"x": SPARSE + 1})["y"], (SPARSE + 1) * SPARSE)
    constant = helper.make_node("Constant", [], ["s"], sparse_value=sparse([5, -2], indices))
    source = model([constant, helper.make_node("Mul", ["x", "s"], ["y"])], {"x": [2, 3]}, ["y"])
    np.testing.assert_array_equal(run(import_model(source), {"x": SPARSE + 1})["y"], (SPARSE + 1) * SPARSE)


@pytest.mark.parametrize("indices", [[2, 6], [-1, 2], [2], 2, [[0, 2], [2, 1]], [[0], [1]], [[0, 2], [1, -1]], [[[0], [2]]]])
def test_out_of_range_indices_of_a_sparse_initializer(indices: Any) -> None:
    source = model([helper.make_node("Neg", ["s"], ["y"])], {}, ["y"])
    source.graph.sparse_initializer.append(sparse([5, -2], indices))
    with pytest.raises(dlc.ModelError, match="sparse initializer 's': 2 values at indices"):
        import_model(source)


@pytest.mark.parametrize(
    ("values", "indices", "dims"), [([5, -2], [4, 4], [2, 3]), ([5, -2], [[], []], []), ([], [], [0, 1 << 62, 1 << 62])]
)
def test_invalid_sparse_initializers(values: Any, indices: Any, dims: Sequence[int]) -> None:
    source = model([helper.make_node("Neg", ["s"], ["y"])], {}, ["y"])
    source.graph.sparse_initializer.append(sparse(values, indices, dims))
    with pytest.raises(dlc.ModelError, match=r"sparse initializer 's': (duplicate indices|no array has the shape)"):
        import_model(source)


def test_a_huge_sparse_initializer_is_refused() -> None:
    source = model([helper.make_node("Neg", ["s"], ["y"])], {}, ["y"])
    source.graph.sparse_initializer.append(sparse([5, -2], [1, 2], [1 << 40]))
    with pytest.raises(dlc.UnsupportedError, match="sparse tensor of 1099511627776 elements"):
        import_model(source)


def sparse(values: Any, indices: Any, dims: Sequence[int] = (2, 3)) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32(values), "s"), numpy_helper.from_array(np.int64(indices)), list(dims)
    )
