"""`split-reductions`: contractions are split along the contracted dimension where a device has too few work-groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.backends.reference import evaluate
from dlc.compiler import Program as Whole
from dlc.compiler import compile
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.ir import SSAValue, bf16, f16, f32
from dlc.options import Options
from dlc.passes.dl.contractions.split_reductions import SplitReductionsPass, choose_split_count
from dlc.passes.dl.simplification.dce import DcePass
from dlc.runtime.opencl.devices import all_devices
from dlc.target import CPU_LEVELS, OPENCL_PROFILES
from tests.passes.programs import Array, Program, Writer, program, randoms
from tests.stages.test_work_groups import run
from tests.targets import gpu

GPU = OPENCL_PROFILES["opencl:gpu"]
# The error of summing 1,536 products of normally distributed values in another order.
TOLERANCE = 2e-4


def split(body: Any, *inputs: Array, tolerance: float = TOLERANCE) -> Program:
    return program(body, *inputs).apply(SplitReductionsPass(GPU), DcePass(), tolerance=tolerance)


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "least", "most"),
    [
        # Cases that are faster split on a GPU of 132 multiprocessors, and the number of slices.
        (128, 768, 3072, 8, 24),
        (192, 256, 2304, 6, 18),
        (64, 512, 4608, 9, 32),
        (768, 128, 1152, 4, 9),
        (1536, 512, 4608, 3, 8),
        (1, 768, 3072, 4, 12),
        # Cases that are not.
        (128, 768, 768, 1, 1),
        (128, 3072, 768, 1, 1),
        (192, 1024, 256, 1, 1),
        (64, 2048, 512, 1, 1),
        (768, 512, 128, 1, 1),
        (3072, 64, 576, 1, 1),
        (1024, 1024, 1024, 1, 1),
        (4096, 3072, 768, 1, 1),
        (1, 2304, 768, 1, 1),
        (1, 50257, 768, 1, 1),
        # Empty products, and contracted dimensions that cannot be split.
        (0, 512, 4608, 1, 1),
        (64, 512, 0, 1, 1),
        (64, 512, 4603, 1, 1),
    ],
)
def test_split_count(rows: int, columns: int, terms: int, least: int, most: int) -> None:
    parts = choose_split_count(rows, columns, 1, terms, terms, gpu(132))
    assert least <= parts <= most and terms % parts == 0
    assert parts == 1 or terms // parts >= 128


def test_batches_and_small_devices_need_fewer_chunks() -> None:
    parts = [choose_split_count(64, 512, times, 4608, 4608, gpu(128)) for times in (1, 4, 64)]
    assert parts[0] > parts[1] > parts[2] == 1
    assert choose_split_count(64, 512, 1, 4608, 4608, gpu(16)) < parts[0]


def test_matmul_with_bias() -> None:
    w, bias = randoms((1536, 24), (24,))

    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.AddOp, b(dl.MatmulOp, x, b.weight(w)), b.weight(bias))

    p = split(body, *randoms((6, 1536)))
    assert p.ops == ["reshape", "reshape", "dot_general", "reduce_sum", "reshape", "add"]


def test_convolution() -> None:
    w = randoms((3, 3, 256, 16))[0] / 50

    def body(b: Writer, x: SSAValue) -> SSAValue:
        return b(dl.ReluOp, b(dl.ConvOp, x, b.weight(w), strides=(1, 1), dilations=(1, 1), groups=1))

    p = split(body, *randoms((1, 6, 6, 256)))
    assert p.ops == ["reshape", "transpose", "reshape", "conv", "reshape", "reduce_sum", "reshape", "relu"]


@pytest.mark.parametrize("element", [f16, bf16])
def test_half_precision_sums_are_rounded_once(element: Any) -> None:
    x, w = (v.astype(np.float16 if element == f16 else ml_dtypes.bfloat16) for v in randoms((6, 1536), (1536, 24)))
    p = split(lambda b, x: b(dl.MatmulOp, x, b.weight(w / 64)), x, tolerance=1e-2)
    (product, total) = (op for op in p.main.walk() if isinstance(op, dl.DotGeneralOp | dl.ReduceSumOp))
    assert element_type_of(product.result) == element_type_of(total.result) == f32
    assert element_type_of(p.main.body.block.last_op.operands[0]) == element


@pytest.mark.parametrize(
    "body",
    [
        # A reshape would prevent reading through a slice, or through the transpose of a slice.
        lambda b, x, w: b(dl.MatmulOp, b(dl.SliceOp, x, starts=(0, 0), limits=(6, 1536), strides=(1, 1)), w),
        lambda b, x, w: b(
            dl.DotGeneralOp,
            b(dl.TransposeOp, b(dl.SliceOp, x, starts=(0, 0), limits=(6, 1536), strides=(1, 1)), permutation=(1, 0)),
            w,
            lhs_batch=(),
            rhs_batch=(),
            lhs_contract=(0,),
            rhs_contract=(0,),
        ),
    ],
)
def test_operands_read_through_movement_stay(body: Any) -> None:
    assert "reduce_sum" not in split(body, *randoms((6, 2048), (1536, 24))).ops


def test_integers_and_grouped_convolutions_stay() -> None:
    x, w = (np.round(v).astype(np.int32) for v in randoms((6, 1536), (1536, 24)))
    assert split(lambda b, x: b(dl.MatmulOp, x, b.weight(w)), x).ops == ["matmul"]
    (taps,) = randoms((3, 3, 128, 16))
    image = randoms((1, 6, 6, 256))[0] / 50
    assert split(lambda b, x: b(dl.ConvOp, x, b.weight(taps), strides=(1, 1), dilations=(1, 1), groups=2), image).ops == [
        "conv"
    ]


def test_dynamic_shapes_and_targets_without_work_groups_stay() -> None:
    open_ = dlc.jit(lambda x, w: x @ w, dynamic={"x": {0: "rows"}})
    whole = open_.lower(*randoms((6, 1536), (1536, 24))).program.module
    before = str(whole)
    SplitReductionsPass(GPU).apply(None, whole)  # pyright: ignore[reportArgumentType]
    assert str(whole) == before
    p = program(lambda b, x, w: b(dl.MatmulOp, x, w), *randoms((6, 1536), (1536, 24)))
    assert p.apply(SplitReductionsPass(CPU_LEVELS["cpu:avx2"])).ops == ["matmul"]


# Epilogues: none, fused, in a row kernel, and with two users.
EPILOGUES: list[Callable[[Any], Any]] = [
    lambda y: y,
    lambda y: dnp.maximum(y + 0.5, 0) * 2,
    lambda y: dnp.tanh(y) + y,
    lambda y: dnp.exp(y - y.max(axis=-1, keepdims=True)),
    lambda y: (y, y.sum(axis=0)),
    lambda y: dnp.swapaxes(y, -1, -2) * 3,
    lambda y: dnp.concatenate([y, y * y], axis=-1),
]


def random_contraction(seed: int) -> tuple[Callable[..., Any], list[Array]]:
    """A contraction with few results and many terms, with an epilogue, and its arguments."""
    rng = np.random.default_rng(seed)
    kind, ending = seed % 4, EPILOGUES[int(rng.integers(len(EPILOGUES)))]
    m, n = (int(rng.choice([1, 2, 5, 8, 17, 33])) for _ in range(2))
    k = int(rng.choice([1024, 1280, 1536, 2048, 2304]))
    batch = int(rng.choice([1, 3]))
    if kind == 0:
        a, c = randoms((m, k), (k, n), seed=seed)
        return (lambda x, w: ending(x @ w)), [a, c / 40]
    if kind == 1:
        a, c = randoms((batch, m, k), (batch, n, k), seed=seed)
        return (lambda x, w: ending(dnp.einsum("bmk,bnk->bmn", x, w))), [a, c / 40]
    if kind == 2:
        a, c = randoms((batch, m, k), (k, n), seed=seed)
        return (lambda x: ending(x @ c / 40)), [a]
    taps, stride = int(rng.choice([1, 3])), int(rng.choice([1, 2]))
    c, h = k // taps // taps // 32 * 32, taps + int(rng.integers(3, 6))
    a, w = randoms((batch, h, h, c), (taps, taps, c, n), seed=seed)
    return (lambda x: ending(dlc.nn.conv(x, w / 40, strides=stride))), [a]


def lowered_program(seed: int) -> tuple[Whole, list[Array], list[Array]]:
    """A program, its arguments, and its results on the reference backend."""
    function, arguments = random_contraction(seed)
    whole = dlc.jit(function).lower(*arguments).program
    return whole, arguments, evaluate(whole.module.clone(), arguments, whole.weights)


@pytest.mark.parametrize("seed", range(24))
def test_random_contractions_at_each_level(seed: int) -> None:
    whole, arguments, expected = lowered_program(seed)
    module = whole.module.clone()
    SplitReductionsPass(GPU).apply(None, module)  # pyright: ignore[reportArgumentType]
    module.verify()
    results = [evaluate(module, arguments, whole.weights), run(whole, ("opencl:gpu", "opencl:small")[seed % 2], arguments)]
    for got in results:
        for one, want in zip(got, expected, strict=True):
            assert np.asarray(one).shape == want.shape
            np.testing.assert_allclose(np.asarray(one), want, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
@pytest.mark.parametrize(
    ("target", "numerics"),
    [
        ("opencl", "default"),
        ("opencl:gpu", "default"),
        ("opencl:gpu", "strict"),
        ("opencl:small", "default"),
        ("reference", "default"),
    ],
)
def test_random_contractions_on_devices(target: str, numerics: str) -> None:
    for seed in range(6):
        whole, arguments, expected = lowered_program(seed)
        model = compile(whole, target, Options.of(num_threads=1, numerics=numerics))
        for got, want in zip(model.run_unchecked(arguments), expected, strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=TOLERANCE, atol=TOLERANCE)


def test_epilogue_fuses_with_the_final_sum() -> None:
    w, bias = randoms((1536, 24), (24,))

    def layer(x: Any, residual: Any) -> Any:
        return dnp.maximum(x @ w + bias, 0) + residual

    text = dlc.jit(layer, target="opencl:gpu").lower(*randoms((6, 1536), (6, 24))).as_text("fusion")
    assert text.count("dl.dispatch") == 2 and "@reduce_sum_add_maximum_add" in text
