"""The page of a program with a kernel of the user: its Python lines next to the text of each stage."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc
import dlc.kernels as k


@dlc.kernel(results=lambda x: k.Result(x.shape, x.dtype))
def cumulative_maximum(x: Any, y: Any) -> None:
    for row in k.grid(x.shape[0]):
        best = k.variable(-np.inf, x.dtype)
        for j in k.range(x.shape[1]):
            best.value = k.maximum(best.value, x[row, j])
            y[row, j] = best.value


def test_lines_of_a_kernel() -> None:
    page = dlc.jit(lambda x: cumulative_maximum(x) + 1).explore(np.ones((4, 6), np.float32))
    (unit,) = (u for u in page.program.units if u.kind == "kernel" and u.name == "cumulative_maximum")
    source, *steps = unit.steps
    assert source.stage == "source" and "best.value = k.maximum(best.value, x[row, j])" in source.listing.text
    lines = source.listing.text.splitlines()
    (store,) = source.listing.origins[next(n for n, line in enumerate(lines) if "y[row, j] = best.value" in line)]
    for step in steps:
        if step.stage not in ("linalg", "loops", "llvm"):
            continue
        linked = [
            line for line, names in zip(step.listing.text.splitlines(), step.listing.origins, strict=False) if store in names
        ]
        assert any("store" in line or "=" in line for line in linked), (step.stage, step.producer)
