"""What a program computes by the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc.backends.reference import evaluate
from dlc.compiler import Program, compile
from dlc.dialects.dl.base import Array


def evaluated(program: Program, arrays: Sequence[Array]) -> Sequence[Array]:
    """The outputs of a program for these inputs, whose sizes it has; where data decides more of them, in parts."""
    if program.is_static:
        return evaluate(program.module, arrays, program.weights)
    return [np.asarray(result) for result in compile(program, "reference").run_unchecked(arrays)]
