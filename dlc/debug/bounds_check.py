"""Check that the kernels of a module access their buffers only within bounds."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.backends.reference import EvaluationError, evaluate
from dlc.compiler import Program
from dlc.dialects.dl.base import Array
from dlc.errors import ModelError
from dlc.ir import MemRefType
from dlc.passes.base import kernels_of


def check_accesses(program: Program, inputs: Sequence[Array]) -> None:
    """Evaluate a program whose kernels are loops on buffers, to detect out-of-bounds accesses that native code would perform.

    Raises ModelError for an access outside a buffer.
    """
    if not any(isinstance(a.type, MemRefType) for kernel in kernels_of(program.module) for a in kernel.args):
        return
    try:
        evaluate(program.module, inputs, program.weights)
    except EvaluationError as error:
        raise ModelError(f"{program.name}: {error}") from error
