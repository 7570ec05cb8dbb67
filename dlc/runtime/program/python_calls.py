"""Calls of ops that are implemented in Python (python_ops/); the executor waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.errors import DlcError, ModelError
from dlc.runtime.program.host_program import PythonCall, Read
from dlc.runtime.program.size_binding import OutOfDomainError
from dlc.runtime.python_ops.registry import run_python_op
from dlc.shapes.dims import substitute


def call_python_op(call: PythonCall, read: Read, sizes: Mapping[str, int]) -> tuple[list[NDArray[Any]], dict[str, int]]:
    """Return the results of an op and the data-dependent sizes that they define; `sizes` has the sizes of the call so far.

    Raises what the op raises, OutOfDomainError if a result's shape is outside of the program's domain, and ModelError if
    the instruction, which may come from a file, does not fit the op.
    """
    try:
        results = run_python_op(call.op, [argument.read(read, sizes) for argument in call.arguments], call.settings)
    except DlcError as error:
        # Errors of collectives already contain the location: other ranks and the monitor report it as well.
        message = str(error)
        raise type(error)(message if message.startswith(_where(call)) else f"{_where(call)}: {message}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{_where(call)}: the op does not accept these arguments: {error}") from error
    ranks, expected_ranks = [result.ndim for result in results], [len(info.shape) for info in call.results]
    if ranks != expected_ranks:
        got_text, expected_text = (", ".join(map(str, group)) for group in (ranks, expected_ranks))
        raise ModelError(f"{_where(call)}: got results with {got_text} axes; expected results with {expected_text} axes")
    arrays = [np.asarray(result, info.dtype, order="C") for info, result in zip(call.results, results, strict=True)]
    data_dependent_sizes: dict[str, int] = {}
    for info, array in zip(call.results, arrays, strict=True):
        if array.shape == info.shape:
            continue  # A static shape.
        pairs = zip(map(str, info.shape), array.shape, strict=True)
        data_dependent_sizes |= {symbol: size for symbol, size in pairs if symbol in call.data_dependent_sizes}
    for info, array in zip(call.results, arrays, strict=True):
        if array.shape == info.shape:
            continue
        expected = tuple(substitute(size, {**sizes, **data_dependent_sizes}) for size in info.shape)
        if array.shape != expected:
            raise OutOfDomainError(f"{_where(call)}: a result of shape {array.shape}, expected {expected}")
    return arrays, data_dependent_sizes


def _where(call: PythonCall) -> str:
    return f"dl.{call.op} at {call.where}"
