"""Control flow in Python: what `dl.scan` and `dl.while` compute, what a failing branch says, and what is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = "NDArray[Any]"
# What a body yields for these arguments.
RunBody: TypeAlias = "Callable[[Sequence[Array]], Sequence[Array]]"


def scan(
    operands: Sequence[Array],
    states: int,
    steps: int,
    empty: Callable[[], Sequence[Array]],
    run: RunBody,
    reverse: bool = False,
) -> list[Array]:
    """The last states, and the sequences that the steps make, which are `empty` where there are no steps."""
    current, made = list(operands[:states]), list[list[Array]]()
    for step in range(steps)[:: -1 if reverse else 1]:
        results = list(run([*current, *(np.asarray(sequence[step]) for sequence in operands[states:])]))
        current = results[:states]
        made.insert(0, results[states:]) if reverse else made.append(results[states:])
    return [*current, *map(np.stack, zip(*made, strict=True))] if made else [*current, *empty()]


def repeat(operands: Sequence[Array], run: RunBody) -> list[Array]:
    """The last states of a loop whose body says whether it runs again; the first operand is whether it runs at all."""
    going, *states = operands
    while going:
        going, *states = run(states)
    return states


def failure(message: str, numbers: Sequence[int]) -> str:
    """A message with these numbers where its last `{}` are; a name in front of them may have braces of its own."""
    if not numbers:
        return message
    first, *parts = message.rsplit("{}", len(numbers))
    return first + "".join(f"{number}{part}" for number, part in zip(numbers, parts, strict=True))


def shown(pieces: Sequence[str], arrays: Sequence[Array]) -> str:
    """A text of pieces: between two texts is how the next array is formatted, as in `f"{x:.3f}"`; element by element."""
    parts = [pieces[0]]
    for form, text, array in zip(pieces[1::2], pieces[2::2], arrays, strict=True):
        parts += [_formatted(array, form), text]
    return "".join(parts)


def _formatted(array: Array, form: str) -> str:
    if not form:
        return str(array[()])
    # The extended floats of ml_dtypes take no format.
    numbers = array.astype(np.float32) if array.dtype.kind == "V" else array
    if not numbers.ndim:
        return format(numbers.item(), form)
    return np.array2string(numbers, formatter={"all": lambda x: format(cast(Any, x).item(), form)})
