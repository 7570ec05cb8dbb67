"""Print the values of a traced function at run time."""

from __future__ import annotations

import builtins
from string import Formatter
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.errors import DlcError
from dlc.frontend.pytree import is_array_like
from dlc.frontend.trace import Tracer, current_trace, with_user_line
from dlc.runtime.python_ops.control import format_print


def print(text: str, /, *args: Any, **kwargs: Any) -> None:
    """Print `text.format(*args, **kwargs)` whenever the traced function runs.

        dlc.debug.print("step {}: loss {loss:.4f}", i, loss=loss)

    Arrays take the formats of scalars: `{x:.3f}` applies to each element. Other arguments are formatted during tracing. In
    loops and branches it prints when the iteration or branch is executed; the lines of one call appear in program order. Under
    `dlc.vmap` an array is printed with its batch dimension as axis 0; in differentiated code the values of the forward pass are
    printed.

    Raises DlcError if `text` is not a string, has a format that arrays do not support, or names a missing argument.
    """
    texts, arrays = _parse_format(text, args, kwargs)
    trace = current_trace()
    if trace is None or trace.is_eager:
        values = [np.asarray(x.array if isinstance(x, Tracer) else x) for x in arrays]
        builtins.print(format_print(texts, values))
        return
    trace.insert(dl.PrintOp(texts, [trace.value(x).value for x in arrays]))


def _parse_format(text: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], list[Any]]:
    """Split a format string into texts and array formats, which alternate, and return them with the arrays."""
    if not isinstance(text, str):
        type_name = type(text).__name__
        raise with_user_line(
            DlcError(f"dlc.debug.print: expected a string with a field for each array, such as 'x = {{}}', got {type_name}")
        )
    formatter, texts, arrays, automatic_fields, field = Formatter(), [""], list[Any](), 0, None
    try:
        for literal, field, format_spec, conversion in formatter.parse(text):
            texts[-1] += literal
            if field is None:
                continue
            if not field:
                field, automatic_fields = str(automatic_fields), automatic_fields + 1
            value: Any = formatter.get_field(field, args, kwargs)[0]
            if is_array_like(value) and conversion is None:
                # Reject an unsupported format during tracing, not at run time.
                format_print(
                    ["", format_spec or "", ""],
                    [np.zeros((), value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype)],
                )
                arrays.append(value)
                texts += [format_spec or "", ""]
            else:
                texts[-1] += format(formatter.convert_field(value, conversion), format_spec or "")
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        available_fields = ", ".join(f"{{{name}}}" for name in [*range(len(args)), *kwargs]) or "nothing"
        problem = f"there is no {{{field}}}" if isinstance(error, LookupError) else str(error)
        raise with_user_line(DlcError(f"dlc.debug.print({text!r}): {problem}; the arguments are {available_fields}")) from None
    return texts, arrays
