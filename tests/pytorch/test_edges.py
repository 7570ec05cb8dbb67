"""What operators are at their edges: of tensors of rank 0, of floats of 16 bits beside numbers that these do not hold, of
integers and bools."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlc.arrays import TensorInfo
from dlc.compiler import compile
from dlc.pytorch.graph import Graph, Node, Ref
from dlc.pytorch.programs import program_of
from dlc.pytorch.rules import RULES
from tests.targets import NATIVE

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


def called(target: str, op: str, *args: Any, of: Any = None, **settings: Any) -> list[np.ndarray[Any, Any]]:
    """What a program of one operator gives; arrays among its arguments are inputs."""
    given = [a for a in args if isinstance(a, np.ndarray)]
    infos = [TensorInfo(f"x{k}", a.shape, a.dtype) for k, a in enumerate(given)]
    names = iter(infos)
    node = Node("y", op, [Ref(next(names).name) if isinstance(a, np.ndarray) else a for a in args], settings)
    expected = RULES[op](*args, **settings)
    several = isinstance(expected, tuple | list)
    parts = list(expected) if several else [expected]
    taken = [Node(f"y{k}", "operator.getitem", [Ref("y"), k]) for k in range(len(parts))] if several else []
    results = [Ref(n.name) for n in taken] or [Ref("y")]
    outputs = [TensorInfo(f"z{k}", np.shape(p), np.asarray(p).dtype) for k, p in enumerate(parts)]
    graph = Graph(infos, [node, *taken], results, outputs)
    return list(compile(program_of(graph, op), target).run_unchecked(given))


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("op", "args", "wanted"),
    [
        ("max.dim", (np.float32(3), 0), [3, 0]),
        ("min.dim", (np.float32(3), -1, True), [3, 0]),
        ("argmax", (np.float32(3), 0), [0]),
        ("sum.dim_IntList", (np.float32(3), [0]), [3]),
        ("amax", (np.float32(3), [-1], True), [3]),
        ("_softmax", (np.float32(3), 0, False), [1]),
        ("_log_softmax", (np.float32(3), 0, False), [0]),
        ("topk", (np.float32(3), 1), [3, 0]),
        ("masked_select", (np.float32(3), np.bool_(True)), [[3]]),
        ("prelu", (np.float32(-2), np.full(1, 0.5, np.float32)), [-1]),
    ],
)
def test_rank_0(target: str, op: str, args: tuple[Any, ...], wanted: list[Any]) -> None:
    got = called(target, op, *(np.asarray(a) if isinstance(a, np.generic) else a for a in args))
    for array, value in zip(got, wanted, strict=True):
        assert array.shape == np.shape(value)
        np.testing.assert_array_equal(array, value)


@pytest.mark.parametrize("target", ["reference", *NATIVE])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_numbers_that_16_bits_do_not_hold_are_factors_as_they_are(target: str, dtype: np.dtype[Any]) -> None:
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
def test_what_operators_of_bools_are(target: str) -> None:
    x = np.array([True, False, True])
    np.testing.assert_array_equal(called(target, "sign", x)[0], x)
    assert [v.tolist() for v in called(target, "mode", x)] == [True, 2]


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_masks_broadcast_what_they_write_to(target: str) -> None:
    x, mask = np.zeros(2, np.float32), np.array([[True, False], [False, True]])
    np.testing.assert_array_equal(called(target, "masked_scatter", x, mask, np.float32([[1, 2], [3, 4]]))[0], [[1, 0], [0, 2]])
