"""`block-reductions`: long sums become sums of blocks, whose error does not grow with the length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.dialects import dl
from dlc.dialects.dl.base import ints, shape_of
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp
from dlc.options import Options
from dlc.passes.dl.contractions.block_reductions import BlockReductionsPass
from dlc.testing.programs import module_of
from dlc.testing.sample import Sample
from dlc.weights import WeightStore
from tests.targets import TARGETS


def summing(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32", keepdims: bool = False) -> ModuleOp:
    properties = {"axes": axes, "keepdims": keepdims}
    return module_of(Sample(dl.ReduceSumOp, (np.zeros(shape, dtype),), np.sum, properties))


def max_reduction_terms(module: ModuleOp) -> int:
    """Return the most terms that a single reduction adds."""
    sums = [op for op in module.walk() if isinstance(op, dl.ReduceSumOp)]
    return max(int(np.prod([op.x.type.get_shape()[a] for a in op.reduction_axes])) for op in sums)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1_000_000,), (0,)),
        ((100_003,), (0,)),
        ((3, 50_021), (0, 1)),
        ((3, 50_021), (1,)),
        ((30_000, 7), (0,)),
        ((2, 200, 100, 5), (1, 2)),
        ((50, 4, 1001), (0, 2)),
        ((7919, 11, 2), (0, 1, 2)),
    ],
)
def test_long_sums_are_blocked(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    module = summing(shape, axes, keepdims=keepdims)
    BlockReductionsPass().apply(make_context(), module)
    module.verify()
    assert max_reduction_terms(module) <= 16384
    x = np.full(shape, 0.1, np.float32)
    x += np.random.default_rng(0).uniform(-0.01, 0.01, shape).astype(np.float32)
    (y,) = compile(Program(summing(shape, axes, keepdims=keepdims), WeightStore()), "cpu", Options(num_threads=1))(x).values()
    np.testing.assert_allclose(y, x.sum(axes, np.float64, keepdims=keepdims), rtol=5e-6)


@pytest.mark.parametrize("shape", [(4096,), (100, 4000), (2**20, 3)])
def test_short_and_integer_sums_stay(shape: tuple[int, ...]) -> None:
    for module in (summing(shape, (-1,)), summing((100_000,), (0,), "int32")):
        before = str(module)
        BlockReductionsPass().apply(make_context(), module)
        assert str(module) == before


@pytest.mark.parametrize("target", ["cpu", "opencl"])
@pytest.mark.parametrize(
    ("shape", "axes"), [((1 << 20,), (0,)), ((2100, 700), (0,)), ((4, 4100, 100), (0, 1)), ((1, 2_000_003), (1,))]
)
@pytest.mark.parametrize("op", [dl.ReduceMaxOp, dl.ReduceMinOp, dl.ReduceNanmaxOp, dl.ReduceNanminOp])
def test_extrema_of_many_elements_are_blocked(
    op: type[dl.AxisReduction], shape: tuple[int, ...], axes: tuple[int, ...], target: str
) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    sample = Sample(op, (x,), np.max, {"axes": axes, "keepdims": False})
    blocked = module_of(sample)
    BlockReductionsPass().apply(make_context(), blocked)
    blocked.verify()
    reductions = [o for o in blocked.walk() if isinstance(o, op)]
    assert len(reductions) > 1 or 2_000_003 in shape
    (expected,) = evaluate(module_of(sample), [x])
    assert np.array_equal(evaluate(blocked, [x])[0], expected)
    (got,) = compile(Program(module_of(sample), WeightStore()), target, Options(num_threads=2)).run_unchecked([x])
    assert np.array_equal(got, expected)


def count_large_distances(x: Any, y: Any) -> Any:
    """Count distances above a limit; the elementwise producers have two paths that converge."""
    distance = x - y
    return dnp.count_nonzero(distance * distance > abs(distance) + y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("shape", [(1 << 20,), (3, 700_000), (1 << 19, 3)])
def test_elementwise_producers_are_computed_in_blocks(shape: tuple[int, ...], others: int, target: str) -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal(shape, np.float32), random.standard_normal(shape[others:], np.float32)
    program = dlc.jit(count_large_distances).lower(x, y).program
    blocked = program.module.clone()
    BlockReductionsPass().apply(make_context(), blocked)
    blocked.verify()
    (distance,) = (op for op in blocked.walk() if isinstance(op, dl.SubOp))
    assert len(shape_of(distance.result)) == len(shape) + 1
    distances = x - y
    expected = np.count_nonzero(distances * distances > abs(distances) + y)
    assert evaluate(blocked, [x, y])[0] == expected
    assert dlc.jit(count_large_distances, target=target, num_threads=2)(x, y) == expected


def test_shared_producers_and_movements_are_not_blocked() -> None:
    def of_both(x: Any) -> tuple[Any, Any]:
        double = x * 2
        return double, double.max() + (x[::-1] * 3).max()

    x = np.ones(1 << 20, np.float32)
    module = dlc.jit(of_both).lower(x).program.module
    BlockReductionsPass().apply(make_context(), module)
    products = [op for op in module.walk() if isinstance(op, dl.MulOp)]
    assert [shape_of(op.result) for op in products] == [x.shape] * 2


def test_reductions_with_enough_tasks_stay() -> None:
    module = module_of(Sample(dl.ReduceMaxOp, (np.zeros((64, 1000, 100), np.float32),), np.max, {"axes": (1,)}))
    before = str(module)
    BlockReductionsPass().apply(make_context(), module)
    assert str(module) == before


def test_half_precision_sums_accumulate_in_f32() -> None:
    x = np.full(200_000, 0.1, np.float16)
    (y,) = compile(Program(summing(x.shape, (0,), "float16"), WeightStore()), "cpu", Options(num_threads=1))(x).values()
    assert y == np.float16(x.sum(dtype=np.float64))


def test_half_precision_products_accumulate_in_f32() -> None:
    x = np.full(1 << 22, 0.01, np.float16)
    module = module_of(Sample(dl.MatmulOp, (x, x), np.matmul))
    (y,) = compile(Program(module, WeightStore()), "cpu", Options(num_threads=1, workers=1)).run_unchecked([x, x])
    assert y == np.float16(np.dot(x.astype(np.float64), x))


# Shapes of the operands, and their batch and contracted axes, or None for a matrix product.
PRODUCTS = [
    ((2, 60_000), (60_000, 3), None),
    ((50_021,), (50_021, 2), None),
    ((33_000,), (33_000,), None),
    ((3, 2, 40_000), (3, 40_000, 1), None),
    ((40_009, 2), (3, 40_009), ((), (), (0,), (1,))),
    ((200, 2, 300), (2, 200, 300, 3), ((1,), (0,), (0, 2), (1, 2))),
]


@pytest.mark.parametrize(("a", "b", "axes"), PRODUCTS)
def test_products_with_many_terms_are_blocked(a: tuple[int, ...], b: tuple[int, ...], axes: object) -> None:
    x, y = (np.full(shape, 0.1, np.float32) for shape in (a, b))
    x += np.random.default_rng(0).uniform(-0.01, 0.01, a).astype(np.float32)
    op, properties = dl.MatmulOp, {}
    if axes is not None:
        names = ("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract")
        op, properties = dl.DotGeneralOp, dict(zip(names, axes, strict=True))

    def module() -> ModuleOp:
        return module_of(Sample(op, (x, y), np.matmul, properties))

    (expected,) = evaluate(module(), [x, y])
    blocked = module()
    BlockReductionsPass().apply(make_context(), blocked)
    blocked.verify()
    products = [o for o in blocked.walk() if isinstance(o, dl.DotGeneralOp)]
    terms = [int(np.prod([o.lhs.type.get_shape()[k] for k in ints(o.lhs_contract)])) for o in products]
    assert products and max(terms) <= 32768
    np.testing.assert_allclose(evaluate(blocked, [x, y])[0], expected, rtol=2e-5)
    (got,) = compile(Program(module(), WeightStore()), "cpu", Options(num_threads=1, workers=1)).run_unchecked([x, y])
    exact = expected if axes is not None else np.matmul(x.astype(np.float64), y)
    np.testing.assert_allclose(got, exact, rtol=4e-5)


@pytest.mark.parametrize(("rows", "k"), [((), 2048), ((1,), 1500), ((3,), 2048), ((2,), 1530), ((), 2003), ((3,), 1999)])
def test_skinny_products_are_split_for_parallelism(rows: tuple[int, ...], k: int) -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((*rows, k), np.float32), random.standard_normal((k, 900), np.float32)

    def module() -> ModuleOp:
        return module_of(Sample(dl.MatmulOp, (x, y), np.matmul))

    blocked = module()
    BlockReductionsPass().apply(make_context(), blocked)
    blocked.verify()
    products = [o for o in blocked.walk() if isinstance(o, dl.DotGeneralOp)]
    terms = [int(np.prod([o.lhs.type.get_shape()[a] for a in ints(o.lhs_contract)])) for o in products]
    assert terms and max(terms) <= 1024
    exact = np.matmul(x.astype(np.float64), y)
    for numerics in ("default", "strict"):
        options = Options(num_threads=1, workers=1, numerics=numerics)
        (got,) = compile(Program(module(), WeightStore()), "cpu", options).run_unchecked([x, y])
        np.testing.assert_allclose(got, exact, atol=2e-4)


def test_products_with_fewer_terms_stay() -> None:
    for dtype, k in (("float32", 32768), ("int32", 40_000), ("float16", 40_000)):
        module = module_of(Sample(dl.MatmulOp, (np.zeros((1, k), dtype), np.zeros((k, 2), dtype)), np.matmul))
        before = str(module)
        BlockReductionsPass().apply(make_context(), module)
        assert str(module) == before


@pytest.mark.parametrize("value", [1 / 3, 1.93, 1.1])
def test_sums_of_equal_terms(value: float) -> None:
    """Rounding errors of equal terms have the same sign, so that they add up along blocks and along their sums."""
    x = np.full((1_000_000, 3), value, np.float32)
    (y,) = compile(Program(summing(x.shape, (0,)), WeightStore()), "cpu", Options(num_threads=1))(x).values()
    np.testing.assert_allclose(y, x.sum(0, np.float64), rtol=1e-5)
