"""Edge cases of operators: tensors of rank 0, half precision with unrepresentable scalars, integers and bools."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlc import random
from dlc.arrays import TensorInfo
from dlc.compiler import compile
from dlc.pytorch.fx_graph import FxGraph, FxNode, ValueRef
from dlc.pytorch.graph_compilation import build_program
from dlc.pytorch.rules import RANDOM_RULES, RULES
from tests.targets import NATIVE

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


def called(target: str, op: str, *args: Any, of: Any = None, **settings: Any) -> list[np.ndarray[Any, Any]]:
    """Run a program of one operator; arrays among its arguments are inputs."""
    given = [a for a in args if isinstance(a, np.ndarray)]
    infos = [TensorInfo(f"x{k}", a.shape, a.dtype) for k, a in enumerate(given)]
    names = iter(infos)
    node = FxNode("y", op, [ValueRef(next(names).name) if isinstance(a, np.ndarray) else a for a in args], settings)
    expected = RULES[op](*args, **settings)
    several = isinstance(expected, tuple | list)
    parts = list(expected) if several else [expected]
    taken = [FxNode(f"y{k}", "operator.getitem", [ValueRef("y"), k]) for k in range(len(parts))] if several else []
    results = [ValueRef(n.name) for n in taken] or [ValueRef("y")]
    outputs = [TensorInfo(f"z{k}", np.shape(p), np.asarray(p).dtype) for k, p in enumerate(parts)]
    graph = FxGraph(infos, [node, *taken], results, outputs)
    return list(compile(build_program(graph, op), target).run_unchecked(given))


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("op", "args", "wanted"),
    [
        (
            "addbmm",
            (np.full((2, 2), 7), np.ones((3, 2, 1), np.int64), np.ones((3, 1, 2), np.int64), 0.6, 1.9),
            [[[3, 3], [3, 3]]],
        ),
        ("max.dim", (np.float32(3), 0), [3, 0]),
        ("min.dim", (np.float32(3), -1, True), [3, 0]),
        ("argmax", (np.float32(3), 0), [0]),
        ("sum.dim_IntList", (np.float32(3), [0]), [3]),
        ("amax", (np.float32(3), [-1], True), [3]),
        ("_softmax", (np.float32(3), 0, False), [1]),
        ("_log_softmax", (np.float32(3), 0, False), [0]),
        ("_softmax_backward_data", (np.float32(3), np.float32(1), -1, np.float32), [0]),
        ("_log_softmax_backward_data", (np.float32(3), np.float32(0), 0, np.float32), [0]),
        ("sort", (np.float32(3), 0), [3, 0]),
        ("argsort", (np.float32(3),), [0]),
        ("flip", (np.float32(3), [0]), [3]),
        ("topk", (np.float32(3), 1), [3, 0]),
        ("masked_select", (np.float32(3), np.bool_(True)), [[3]]),
        ("prelu", (np.float32(-2), np.full(1, 0.5, np.float32)), [-1]),
        ("gather", (np.float32(3), 0, np.zeros(1, np.int64)), [[3]]),
        ("gather", (np.full(2, 3, np.float32), 0, np.int64(1)), [3]),
        ("gather", (np.full(2, 3, np.float32), 0, np.zeros((2, 0), np.int64)), [np.zeros((2, 0))]),
        ("scatter_add", (np.full(1, 3, np.float32), 0, np.int64(0), np.float32(2)), [[5]]),
        ("index_fill.int_Scalar", (np.float32(3), 0, np.zeros(1, np.int64), 7.0), [7]),
        ("index_add", (np.float32(3), 0, np.int64(0), np.float32(2)), [5]),
        ("index_copy", (np.float32(3), 0, np.zeros(1, np.int64), np.full(1, 2, np.float32)), [2]),
        ("index_reduce", (np.float32(3), 0, np.zeros(1, np.int64), np.full(1, 2, np.float32), "prod"), [6]),
        ("take", (np.full((2, 2), 3, np.float32), np.int64(1)), [3]),
        ("unfold", (np.float32(3), 0, 1, 1), [[3]]),
        ("nonzero_static", (np.float32(3), 2), [np.zeros((2, 0))]),
        ("scatter_add", (np.full(2, 3, np.float32), 0, np.zeros((2, 0), np.int64), np.zeros((2, 0), np.float32)), [[3, 3]]),
        ("angle", (np.array([-3, 4], np.int8),), [[np.float32(np.pi), 0]]),
        (
            "upsample_bilinear2d",
            (np.array([[[[0, 100], [200, 40]]]], np.uint8), [3, 3], True),
            [[[[[0, 50, 100], [100, 85, 70], [200, 120, 40]]]]],
        ),
        ("replication_pad1d", (np.arange(4, dtype=np.float32)[None], [-1, 2]), [[[1, 2, 3, 3, 3]]]),
        (
            "max_pool2d_with_indices_backward",
            (
                np.ones((1, 1, 2), np.float32),
                np.array([[[1, 2, 4, 3]]], np.float32),
                [1, 2],
                [1, 2],
                [0, 0],
                [1, 1],
                False,
                np.array([[[1, 2]]]),
            ),
            [[[[0, 1, 1, 0]]]],
        ),
    ],
)
def test_rank_0(target: str, op: str, args: tuple[Any, ...], wanted: list[Any]) -> None:
    got = called(target, op, *(np.asarray(a) if isinstance(a, np.generic) else a for a in args))
    for array, value in zip(got, wanted, strict=True):
        assert array.shape == np.shape(value)
        np.testing.assert_array_equal(array, value)


def test_primitive_operators() -> None:
    """The rules of torch.ops.prims, and the slopes of a randomized leaky ReLU in training and in evaluation."""
    x = np.array([[-1.5, 2], [3, -4]], np.float32)
    noise = np.array([[0.5, 1], [1, 0.25]], np.float32)
    for op, args, settings, wanted in (
        ("prims::sum", (x, [0]), {}, [1.5, -2]),
        ("prims::prod", (x, [0, 1]), {"output_dtype": np.dtype(np.float64)}, 36),
        ("rrelu_with_noise_backward", (x, x, noise, 0.1, 0.3, True, False), {}, x * noise),
        ("rrelu_with_noise_backward", (x, x, noise, 0.1, 0.3, False, False), {}, np.where(x > 0, x, x * 0.2)),
        ("rrelu_with_noise_backward", (x, x, noise, 0.2, 0.2, True, False), {}, np.where(x > 0, x, x * 0.2)),
    ):
        np.testing.assert_allclose(called("reference", op, *args, **settings)[0], wanted, 1e-6)
    assert called("reference", "prims::sum", x, [0], output_dtype=np.dtype(np.float64))[0].dtype == np.float64
    assert RULES["prims::iota"](4, 1, 3, dtype=np.dtype(np.int32)).tolist() == [1, 4, 7, 10]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_reductions_of_bools(target: str) -> None:
    x, places = np.array([True, False, True, False]), np.array([0, 1, 1, 2])
    source = np.array([True, True, False, False])
    sums, products = [True, True, True, False], [True, False, False, False]
    assert called(target, "scatter_add", x, 0, places, source)[0].tolist() == sums
    assert called(target, "index_add", x, 0, places, source)[0].tolist() == sums
    assert called(target, "put", x, places, source, True)[0].tolist() == sums
    for reduce, wanted in (("sum", sums), ("amax", sums), ("prod", products), ("amin", products)):
        assert called(target, "scatter_reduce.two", x, 0, places, source, reduce)[0].tolist() == wanted, reduce
    alone = called(target, "scatter_reduce.two", x, 0, places, source, "amin", False)[0]
    assert alone.tolist() == [True, False, False, False]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_population_variance(target: str) -> None:
    x = np.array([1, 2, 4, 5], np.float32)
    assert [called(target, "var", x, *unbiased)[0].item() for unbiased in ((), (True,), (False,))] == pytest.approx(
        [10 / 3, 10 / 3, 2.5]
    )
    assert called(target, "var.dim", x, 0, False)[0].item() == pytest.approx(2.5)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("order", [2, 3])
def test_norm_whose_powers_overflow_half_precision(target: str, order: int) -> None:
    x = np.full(16, 300, np.float16)
    (norm,) = called(target, "linalg_vector_norm", x, order)
    assert norm.dtype == np.float16
    np.testing.assert_allclose(norm, 300 * 16 ** (1 / order), rtol=1e-3)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_unique_consecutive_of_no_rows(target: str) -> None:
    values, which, counts = called(target, "unique_consecutive", np.zeros((0, 2), np.float32), True, True, 0)
    assert (values.shape, which.shape, counts.shape) == ((0, 2), (0,), (0,))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_matrices_without_elements(target: str) -> None:
    x = np.zeros((3, 0), np.float32)
    (inverse,) = called(target, "linalg_pinv.atol_rtol_tensor", x, np.float32(0), np.float32(0.1))
    assert inverse.shape == (0, 3)
    none, pivots = np.zeros((0, 0), np.float32), np.zeros(0, np.int32)
    assert called(target, "linalg_lu_solve", none, pivots, np.zeros((0, 2), np.float32))[0].shape == (0, 2)


def test_gradients_of_an_embedding_are_divided_by_the_number_of_uses() -> None:
    gradient, indices = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([1, 2, 1, 0])
    (result,) = called("cpu", "embedding_dense_backward", gradient, indices, 3, 0, True)
    np.testing.assert_array_equal(result, [[0, 0], [2, 3], [2, 3]])


def test_the_pseudo_inverse_of_a_hermitian_matrix_reads_its_lower_triangle() -> None:
    x = np.array([[2.0, 7.0], [1.0, 3.0]])
    (inverse,) = called("cpu", "linalg_pinv.atol_rtol_tensor", x, None, None, True)
    np.testing.assert_allclose(inverse, np.linalg.inv([[2.0, 1.0], [1.0, 3.0]]))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_products_of_reflections(target: str) -> None:
    x, other = np.random.default_rng(1).standard_normal((2, 4, 3))
    raw, tau = np.linalg.qr(x, mode="raw")
    reduced, complete = np.linalg.qr(x)[0], np.linalg.qr(x, mode="complete")[0]
    reflectors = np.ascontiguousarray(raw.T)
    (product,) = called(target, "linalg_householder_product", reflectors, tau)
    np.testing.assert_allclose(product, reduced, atol=1e-12)
    (left,) = called(target, "ormqr", reflectors, tau, other, True, True)
    np.testing.assert_allclose(left, complete.T @ other, atol=1e-12)
    (right,) = called(target, "ormqr", reflectors, tau, np.ascontiguousarray(other.T), False)
    np.testing.assert_allclose(right, other.T @ complete, atol=1e-12)


@pytest.mark.parametrize("target", ["reference", *NATIVE])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_scalars_are_not_rounded_to_half_precision(target: str, dtype: np.dtype[Any]) -> None:
    x = np.array([0.1, 0.25, 3e-4], dtype)
    wide = x.astype(np.float32)
    for op, number, wanted in (
        ("mul", 1e5, wide * 1e5),
        ("mul", 0.1, wide * 0.1),
        ("div", 1e5, wide / 1e5),
        ("mul", 70000, wide * 7e4),
    ):
        for operand in (number, np.asarray(number, np.float32)):
            (y,) = called(target, f"{op}.Tensor", x, operand)
            assert y.dtype == dtype
            np.testing.assert_array_equal(y, wanted.astype(np.float32).astype(dtype))


@pytest.mark.parametrize("target", ["reference", *NATIVE])
def test_three_operands_are_rounded_once(target: str) -> None:
    x, y, z = (np.array(v, BF16) for v in ([1.0, 66.0], [1.0078125, 3.015625], [1.0078125, 2.984375]))
    wide = [v.astype(np.float32) for v in (x, y, z)]
    (got,) = called(target, "addcmul", x, y, z, value=3.14)
    np.testing.assert_array_equal(got, (wide[0] + np.float32(3.14) * (wide[1] * wide[2])).astype(BF16))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_pools_of_integers_and_of_sums_beyond_their_dtype(target: str) -> None:
    x = np.array([[[7, -8, 3, 2]]])
    np.testing.assert_array_equal(called(target, "avg_pool1d", x, [2], [2])[0], [[[0, 2]]])
    np.testing.assert_array_equal(
        called(target, "avg_pool1d", np.full((1, 1, 4), 6e4, F16), [4])[0], np.full((1, 1, 1), 6e4, F16)
    )


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_addbmm_adds_the_products(target: str) -> None:
    x, y, bias = (np.arange(n, dtype=np.float32).reshape(s) for n, s in ((12, (2, 2, 3)), (24, (2, 3, 4)), (4, (4,))))
    (got,) = called(target, "addbmm", bias, x, y, beta=0.5, alpha=2)
    np.testing.assert_array_equal(got, 0.5 * bias + 2 * (x @ y).sum(0))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_operators_of_bools(target: str) -> None:
    x = np.array([True, False, True])
    np.testing.assert_array_equal(called(target, "sign", x)[0], x)
    assert [v.tolist() for v in called(target, "mode", x)] == [True, 2]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_masked_updates_broadcast(target: str) -> None:
    x, mask = np.zeros(2, np.float32), np.array([[True, False], [False, True]])
    np.testing.assert_array_equal(called(target, "masked_scatter", x, mask, np.float32([[1, 2], [3, 4]]))[0], [[1, 0], [0, 2]])


def test_randint_of_float_dtype() -> None:
    drawn = RANDOM_RULES["randint"](random.key(np.int64(3)), 5, [40], np.dtype(np.float32))
    assert drawn.dtype == np.float32
    assert set(np.asarray(drawn).tolist()) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_fake_quantization(target: str) -> None:
    x = np.float32([[-9, -0.26, 0.5], [0.75, 1.3, 40]])
    # Levels -4 to 3 with scale 1/2; half rounds to even.
    wanted, inside = [[-2, -0.5, 0.5], [1, 1.5, 1.5]], [[False, True, True], [True, True, False]]
    got, kept = called(target, "fake_quantize_per_tensor_affine_cachemask", x, 0.5, 0, -4, 3)
    assert (got.tolist(), kept.tolist()) == (wanted, inside)
    scale, zero = np.float32([0.5, 1]), np.int32([0, 1])
    got, kept = called(target, "fake_quantize_per_channel_affine_cachemask", x, scale, zero, 0, -4, 3)
    assert (got.tolist(), kept.tolist()) == ([wanted[0], [1, 1, 2]], inside)
    op = "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
    for enabled in (0, 1):
        got, kept = called(target, op, x, np.float32([0.5]), np.int32([0]), np.int64([enabled]), -4, 3)
        assert (got.tolist(), kept.tolist()) == ((wanted, inside) if enabled else (x.tolist(), [[True] * 3] * 2))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_integers_wrap_around(target: str) -> None:
    """The values are PyTorch's: a number becomes one of the tensor's dtype, and negative powers of 1 and -1 are exact."""
    x, base = np.array([255, 1, 0], np.uint8), np.array([-2, -1, 0, 1, 2], np.int64)
    for op, args, wanted in (
        ("eq.Scalar", (x, -1), [True, False, False]),
        ("lt.Scalar", (x, 300), [False, True, True]),
        ("add.Tensor", (x, -1), [254, 0, 255]),
        ("mul.Tensor", (x, 300), [212, 44, 0]),
        ("index_add", (x, 0, np.array([2]), x[:1], -1), [255, 1, 1]),
        ("pow.Tensor_Tensor", (base, np.full(5, -1)), [0, -1, 0, 1, 0]),
        ("pow.Tensor_Tensor", (base, np.array([-2, -2, 3, -2, 5])), [0, 1, 0, 1, 32]),
        ("pow.Scalar", (2, np.array([-1, 3])), [0, 8]),
    ):
        (got,) = called(target, op, *args)
        np.testing.assert_array_equal(got, wanted, op)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_operands_without_elements(target: str) -> None:
    x, none = np.ones((2, 3), np.float32), np.zeros(0, np.float32)
    np.testing.assert_array_equal(called(target, "masked_scatter", x, np.zeros((2, 3), bool), none)[0], x)
    rows, means = np.zeros((0, 2), np.float32), np.zeros((0, 1), np.float32)
    operands = (rows, rows, means, means, np.ones(2, np.float32), 0, 2, 1, 1, [True, True, True])
    gradients = called(target, "native_group_norm_backward", *operands)
    assert [gradient.tolist() for gradient in gradients] == [[], [0, 0], [0, 0]]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_images_of_integers_are_rounded_after_each_axis(target: str) -> None:
    x = np.array([[[[0, 255, 255, 0], [0, 0, 255, 255]]]], np.uint8)
    (got,) = called(target, "upsample_bicubic2d", x, [3, 6], False)
    expected = [[0, 139, 255, 255, 117, 0], [0, 64, 146, 237, 192, 128], [0, 0, 18, 215, 255, 255]]
    np.testing.assert_allclose(got[0, 0].astype(int), expected, atol=1)
