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

    `empty` creates the stacked outputs if there are no steps.
    """
    current, outputs = list(operands[:states]), list[list[Array]]()
    for step in range(steps)[:: -1 if reverse else 1]:
        results = list(run([*current, *(np.asarray(sequence[step]) for sequence in operands[states:])]))
        current = results[:states]
        outputs.insert(0, results[states:]) if reverse else outputs.append(results[states:])
    return [*current, *map(np.stack, zip(*outputs, strict=True))] if outputs else [*current, *empty()]


def while_loop(operands: Sequence[Array], run: RunBody) -> list[Array]:
    """Return the final states of a while loop; operand 0 is the initial condition, and the body yields the next one first."""
    condition, *states = operands
    while condition:
        condition, *states = run(states)
    return states


def format_failure(message: str, values: Sequence[int]) -> str:
    """Format values into the last `{}` fields of a message; text before them may contain braces."""
    if not values:
        return message
    first, *texts = message.rsplit("{}", len(values))
    return first + "".join(f"{value}{text}" for value, text in zip(values, texts, strict=True))


def format_print(format_parts: Sequence[str], arrays: Sequence[Array]) -> str:
    """Format arrays; `format_parts` alternates between literal text and the format of the next array, as in `f"{x:.3f}"`."""
    texts = [format_parts[0]]
    for format_spec, text, array in zip(format_parts[1::2], format_parts[2::2], arrays, strict=True):
        texts += [_format_array(array, format_spec), text]
    return "".join(texts)


def _format_array(array: Array, format_spec: str) -> str:
    if not format_spec:
        return str(array[()])
    # The extended floats of ml_dtypes do not support format specifications.
    values = array.astype(np.float32) if array.dtype.kind == "V" else array
    if not values.ndim:
        return format(values.item(), format_spec)
    return np.array2string(values, formatter={"all": lambda x: format(cast(Any, x).item(), format_spec)})
