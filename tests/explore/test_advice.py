"""Advice for kernels by what bounds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.dialects.registry import make_context
from dlc.explore.advice import CompileSettings, ContractionDtypes, advice, contraction_dtypes
from dlc.explore.data import KernelSummary, MemoryUsage, RunMeasurements, WeightUsage
from dlc.ir import parse_module
from dlc.options import Options
from dlc.target import CPU_LEVELS

# 100 GFLOP/s, 10 GB/s from memory.
LIMITS = RunMeasurements((1.0,), (), (), 1e11, 1e11, 1e10)
COMPUTES = KernelSummary("matmul", (), 1, (64,), 0, 0.0, (), flops=10**9, bytes=10**6, seconds=2e-2, limit_seconds=1e-2)
READS = KernelSummary("matmul", (), 1, (64,), 0, 0.0, (), flops=10**7, bytes=10**8, seconds=2e-2, limit_seconds=1e-2)
NO_WEIGHTS = MemoryUsage(0, (), (), (), 0, 0)
WEIGHTS = replace(NO_WEIGHTS, weights=(WeightUsage("w", "float32[5000, 5000]", 10**8, ("matmul",)),))


def told(
    kernel: KernelSummary,
    products: str = "float32",
    memory: MemoryUsage = NO_WEIGHTS,
    target: str = "cpu:avx2",
    has_weights: bool = True,
    **options: object,
) -> str:
    settings = CompileSettings(CPU_LEVELS[target], Options.of(**options), 4)
    dtypes = ContractionDtypes(frozenset({products} - {""}), frozenset({products} - {""} if has_weights else ()))
    return "\n".join(advice(kernel, [kernel], dtypes, memory, LIMITS, settings))


def test_compute_bound_kernels() -> None:
    assert "tune 10" in told(COMPUTES) and "dlc quantize" in told(COMPUTES)
    assert "tune" not in told(COMPUTES, tune=1.0)
    assert "tune" not in told(replace(COMPUTES, seconds=1.1e-2))
    assert "precision bf16" in told(COMPUTES, target="cpu:avx512_bf16")
    assert "precision bf16" not in told(COMPUTES)
    assert "dlc quantize" not in told(COMPUTES, products="int32")
    assert "dlc quantize" not in told(COMPUTES, has_weights=False)


def test_contractions_of_weights_are_distinguished_from_those_of_data() -> None:
    weights = np.ones((64, 64), np.float32)

    def function(x: Any, y: Any) -> Any:
        return (x @ weights) @ y

    x = np.ones((64, 64), np.float32)
    module = parse_module(make_context(), dlc.jit(function).lower(x, x).as_text("fusion"))
    found = contraction_dtypes(module).values()
    assert sorted(sorted(dtypes.with_weights) for dtypes in found) == [[], ["float32"]]
    assert all(dtypes.all == {"float32"} for dtypes in found)


def test_memory_bound_kernels() -> None:
    assert "weights int8" in told(READS, memory=WEIGHTS)
    assert "larger batch" in told(READS, memory=WEIGHTS, weights="int8") and "weights int8" not in told(
        READS, memory=WEIGHTS, weights="int8"
    )
    assert told(READS) == ""
    assert "float16" in told(replace(READS, seconds=1.1e-2))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (replace(COMPUTES, tasks=(1,)), "1 task for 4 threads"),
        (replace(COMPUTES, runs=10**6), "hardly longer than its launch overhead"),
    ],
)
def test_short_kernels_and_few_tasks(kernel: KernelSummary, text: str) -> None:
    assert text in told(kernel)


def test_strict_numerics() -> None:
    assert "numerics strict" in told(COMPUTES, numerics="strict")
    assert "numerics strict" not in told(COMPUTES, products="", numerics="strict")


def test_no_advice_for_fast_kernels() -> None:
    other = replace(COMPUTES, name="other", seconds=10.0)
    assert not list(
        advice(
            COMPUTES, [COMPUTES, other], {"float32"}, NO_WEIGHTS, LIMITS, CompileSettings(CPU_LEVELS["cpu:avx2"], Options(), 4)
        )
    )
