"""What a program computes by the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.backends.reference import evaluate
from dlc.compiler import Program
from dlc.dialects.dl.base import Array


def evaluated(program: Program, arrays: Sequence[Array]) -> Sequence[Array]:
    """The outputs of a program for these inputs, whose sizes it has; those that its data decides come with them."""
    return evaluate(program.module, arrays, program.weights)
