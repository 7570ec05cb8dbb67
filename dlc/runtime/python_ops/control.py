"""Semantics of control flow in Python: `dl.scan` and `dl.while`, error messages of failing branches, and printing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
# Runs a body on arguments and returns what it yields.
RunBody: TypeAlias = "Callable[[Sequence[Array]], Sequence[Array]]"


def scan(
    operands: Sequence[Array],
    states: int,
    steps: int,
    empty: Callable[[], Sequence[Array]],
    run: RunBody,
    reverse: bool = False,
) -> list[Array]:
    """Return the final states, followed by the stacked outputs of all steps.

    `empty` creates the latter if there are no steps.
    """
    current, outputs = list(operands[:states]), list[list[Array]]()
    for step in range(steps)[:: -1 if reverse else 1]:
        results = list(run([*current, *(np.asarray(sequence[step]) for sequence in operands[states:])]))
        current = results[:states]
        outputs.insert(0, results[states:]) if reverse else outputs.append(results[states:])
    return [*current, *map(np.stack, zip(*outputs, strict=True))] if outputs else [*current, *empty()]


def while_loop(operands: Sequence[Array], run: RunBody) -> list[Array]:
    """Return the final states of a while loop; operand 0 is the initial condition, and the body yields the next one first."""
    going, *states = operands
    while going:
        going, *states = run(states)
    return states


def format_failure(message: str, numbers: Sequence[int]) -> str:
    """Format values into the last `{}` fields of a message; text before them may contain braces."""
    if not numbers:
        return message
    first, *parts = message.rsplit("{}", len(numbers))
    return first + "".join(f"{number}{part}" for number, part in zip(numbers, parts, strict=True))


def format_print(pieces: Sequence[str], arrays: Sequence[Array]) -> str:
    """Format arrays between pieces of text; the piece before each text is the array's format, as in `f"{x:.3f}"`."""
    parts = [pieces[0]]
    for form, text, array in zip(pieces[1::2], pieces[2::2], arrays, strict=True):
        parts += [_formatted(array, form), text]
    return "".join(parts)


def _formatted(array: Array, form: str) -> str:
    if not form:
        return str(array[()])
    # The extended floats of ml_dtypes do not support format specifications.
    numbers = array.astype(np.float32) if array.dtype.kind == "V" else array
    if not numbers.ndim:
        return format(numbers.item(), form)
    return np.array2string(numbers, formatter={"all": lambda x: format(cast(Any, x).item(), form)})
