"""Ops of a program that only Python computes, by NumPy (python_ops/), while whoever runs the others waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.dims import substitute
from dlc.errors import DlcError, ModelError
from dlc.runtime.program.host_program import Compute, Read
from dlc.runtime.program.open_program import OutsideError
from dlc.runtime.python_ops.selection import select


def computed(compute: Compute, read: Read, sizes: Mapping[str, int]) -> tuple[list[NDArray[Any]], dict[str, int]]:
    """The results of an op, and the sizes that they decide; `sizes` are those that are known before.

    Raises what the op raises, OutsideError for results that are not as large as the program takes them to be, and ModelError
    where a file says of the op what is not so.
    """
    where = f"dl.{compute.op} at {compute.where}"
    try:
        results = select(compute.op, [argument.read(read, sizes) for argument in compute.arguments], compute.settings)
    except DlcError as error:
        raise type(error)(f"{where}: {error}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{where}: it is no op of such arguments: {error}") from error
    if [len(info.shape) for info in compute.results] != [np.ndim(result) for result in results]:
        made = ", ".join(f"{np.ndim(result)} axes" for result in results)
        raise ModelError(f"{where}: {len(results)} results of {made}; expected {', '.join(map(str, compute.results))}")
    arrays = [np.asarray(result, info.dtype, order="C") for info, result in zip(compute.results, results, strict=True)]
    decided: dict[str, int] = {}
    for info, array in zip(compute.results, arrays, strict=True):
        pairs = zip(map(str, info.shape), array.shape, strict=True)
        decided |= {symbol: size for symbol, size in pairs if symbol in compute.decided}
    for info, array in zip(compute.results, arrays, strict=True):
        expected = tuple(substitute(size, {**sizes, **decided}) for size in info.shape)
        if array.shape != expected:
            raise OutsideError(f"{where}: a result of shape {array.shape}, expected {expected}")
    return arrays, decided
