"""Long sums become sums of blocks, whose error grows no more with their length."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.compiler import Program, compile
from dlc.dialects import dl
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp
from dlc.options import Options
from dlc.passes.dl.block_sums import BlockSumsPass
from dlc.weights import WeightStore
from tests.ops.programs import module_of
from tests.ops.sample import Sample


def summing(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str = "float32", keepdims: bool = False) -> ModuleOp:
    properties = {"axes": axes, "keepdims": keepdims}
    return module_of(Sample(dl.ReduceSumOp, (np.zeros(shape, dtype),), np.sum, properties))


def longest(module: ModuleOp) -> int:
    """The most terms that one reduction adds."""
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
def test_sums_are_blocked(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    module = summing(shape, axes, keepdims=keepdims)
    BlockSumsPass().apply(make_context(), module)
    module.verify()
    assert longest(module) <= 16384
    x = np.full(shape, 0.1, np.float32)
    x += np.random.default_rng(0).uniform(-0.01, 0.01, shape).astype(np.float32)
    (y,) = compile(Program(summing(shape, axes, keepdims=keepdims), WeightStore()), "cpu", Options(num_threads=1))(x).values()
    np.testing.assert_allclose(y, x.sum(axes, np.float64, keepdims=keepdims), rtol=5e-6)


@pytest.mark.parametrize("shape", [(4096,), (100, 4000), (2**20, 3)])
def test_short_sums_and_sums_of_integers_stay(shape: tuple[int, ...]) -> None:
    for module in (summing(shape, (-1,)), summing((100_000,), (0,), "int32")):
        before = str(module)
        BlockSumsPass().apply(make_context(), module)
        assert str(module) == before


def test_partial_sums_of_halves_are_kept_in_f32() -> None:
    x = np.full(200_000, 0.1, np.float16)
    (y,) = compile(Program(summing(x.shape, (0,), "float16"), WeightStore()), "cpu", Options(num_threads=1))(x).values()
    assert y == np.float16(x.sum(dtype=np.float64))
