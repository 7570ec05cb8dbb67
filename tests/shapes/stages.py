"""Helpers of dynamic-shape tests: the program after every stage, and comparison of results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from dlc.backends.registry import backend_of
from dlc.compiler import Program
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.dialects.dl.base import Array
from dlc.ir import ModuleOp
from dlc.options import Options
from dlc.weights import WeightStore


def at_each_stage(program: Program) -> Iterator[tuple[ModuleOp, WeightStore]]:
    """Yield a program after each of its stages for the CPU."""
    lowering = Lowering(Compilation(program, backend_of("cpu"), Options(verify=True)))
    for stage in ("dl", "fusion", "linalg", "tiling", "loops", "host"):
        if stage == "host":
            lowering.host()
        else:
            lowering.run(tuple(s for s in lowering.plan if s.name == stage))
        yield lowering.module, lowering.weights


def agree(got: Iterable[Array], expected: Iterable[Array]) -> None:
    for g, e in zip(got, expected, strict=True):
        assert (g.dtype, g.shape) == (e.dtype, e.shape)
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5)
