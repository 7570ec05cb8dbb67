"""Evaluate a program with the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.backends.reference import evaluate
from dlc.compiler import Program
from dlc.dialects.dl.base import Array


def evaluate_outputs(program: Program, arrays: Sequence[Array]) -> Sequence[Array]:
    """Return the outputs of a program for inputs of its static sizes; data-dependent sizes are determined by evaluation."""
    return evaluate(program.module, arrays, program.weights)
