"""What a function computes, printed while it runs."""

from __future__ import annotations

import builtins
from string import Formatter
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import DlcError
from dlc.frontend.pytree import is_array_like
from dlc.frontend.trace import Tracer, at_user_line, current_trace
from dlc.runtime.python_ops.control import shown


def print(text: str, /, *args: Any, **kwargs: Any) -> None:
    """Prints `text.format(*args, **kwargs)` when the function that is traced here runs, as often as it runs.

        dlc.debug.print("step {}: loss {loss:.4f}", i, loss=loss)

    Arrays may be formatted as numbers are: `{x:.3f}` goes for each element. What is no array is formatted at once. Inside
    loops and branches it prints when a step or a branch is taken; lines come in the order in which they are written, those
    of one call of one program. In lanes of `dlc.vmap` an array is printed with all of its lanes, along axis 0; of what is
    differentiated, the numbers of the forward pass.

    Raises DlcError for what is no text, or no format of such arrays, or names what is not given.
    """
    pieces, arrays = _parsed(text, args, kwargs)
    trace = current_trace()
    if trace is None or trace.steps:
        known = [np.asarray(x.array if isinstance(x, Tracer) else x) for x in arrays]
        builtins.print(shown(pieces, known))
        return
    trace.insert(dl.PrintOp(pieces, [trace.value(x).value for x in arrays]))


def _parsed(text: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], list[Any]]:
    """The texts around the arrays, with the format of each between them, and these arrays."""
    if not isinstance(text, str):
        got = type(text).__name__
        raise at_user_line(
            DlcError(f"dlc.debug.print: expected a text with a field for each array, such as 'x = {{}}', got {got}")
        )
    formatter, pieces, arrays, places, field = Formatter(), [""], list[Any](), 0, None
    try:
        for literal, field, form, conversion in formatter.parse(text):
            pieces[-1] += literal
            if field is None:
                continue
            if not field:
                field, places = str(places), places + 1
            value: Any = formatter.get_field(field, args, kwargs)[0]
            if is_array_like(value) and conversion is None:
                # What its numbers do not take is told before they are there.
                shown(["", form or "", ""], [np.zeros((), value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype)])
                arrays.append(value)
                pieces += [form or "", ""]
            else:
                pieces[-1] += format(formatter.convert_field(value, conversion), form or "")
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        given = ", ".join(f"{{{name}}}" for name in [*range(len(args)), *kwargs]) or "nothing"
        what = f"there is no {{{field}}}" if isinstance(error, LookupError) else str(error)
        raise at_user_line(DlcError(f"dlc.debug.print({text!r}): {what}; it is given {given}")) from None
    return pieces, arrays
