"""What can be changed about a kernel, by what bounds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.explore.advice import Settings, advice
from dlc.explore.data import Kernel, Measured, Memory, Weight
from dlc.options import Options
from dlc.target import CPU_LEVELS

# 100 GFLOP/s, 10 GB/s from memory.
LIMITS = Measured((1.0,), (), (), 1e11, 1e11, 1e10)
COMPUTES = Kernel("matmul", (), 1, (64,), 0, 0.0, (), flops=10**9, bytes=10**6, seconds=2e-2, least=1e-2)
READS = Kernel("matmul", (), 1, (64,), 0, 0.0, (), flops=10**7, bytes=10**8, seconds=2e-2, least=1e-2)
NO_WEIGHTS = Memory(0, (), (), (), 0, 0)
WEIGHTS = replace(NO_WEIGHTS, weights=(Weight("w", "float32[5000, 5000]", 10**8, ("matmul",)),))


def told(
    kernel: Kernel, products: str = "float32", memory: Memory = NO_WEIGHTS, target: str = "cpu:avx2", **options: object
) -> str:
    settings = Settings(CPU_LEVELS[target], Options.of(**options), 4)
    return "\n".join(advice(kernel, [kernel], {products} - {""}, memory, LIMITS, settings))


def test_of_arithmetic() -> None:
    assert "tune 10" in told(COMPUTES) and "dlc quantize" in told(COMPUTES)
    assert "tune" not in told(COMPUTES, tune=1.0)
    assert "tune" not in told(replace(COMPUTES, seconds=1.1e-2))
    assert "precision bf16" in told(COMPUTES, target="cpu:avx512_bf16")
    assert "precision bf16" not in told(COMPUTES)
    assert "dlc quantize" not in told(COMPUTES, products="int32")


def test_of_memory() -> None:
    assert "weights int8" in told(READS, memory=WEIGHTS)
    assert "larger batch" in told(READS, memory=WEIGHTS, weights="int8") and "weights int8" not in told(
        READS, memory=WEIGHTS, weights="int8"
    )
    assert told(READS) == ""
    assert "float16" in told(replace(READS, seconds=1.1e-2))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (replace(COMPUTES, tasks=(1,)), "1 task, of 4 threads"),
        (replace(COMPUTES, runs=10**6), "hardly longer than what starts one"),
    ],
)
def test_of_little_to_do(kernel: Kernel, text: str) -> None:
    assert text in told(kernel)


def test_of_strict_numerics() -> None:
    assert "numerics strict" in told(COMPUTES, numerics="strict")
    assert "numerics strict" not in told(COMPUTES, products="", numerics="strict")


def test_nothing_is_said_of_what_takes_little() -> None:
    other = replace(COMPUTES, name="other", seconds=10.0)
    assert not list(
        advice(COMPUTES, [COMPUTES, other], {"float32"}, NO_WEIGHTS, LIMITS, Settings(CPU_LEVELS["cpu:avx2"], Options(), 4))
    )
