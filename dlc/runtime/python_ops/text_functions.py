"""What ops on text compute, by Python's strings: operands and results are numbers of texts (`texts.py`), or numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from reprlib import repr as short
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import named_dtype
from dlc.errors import DTypeError
from dlc.runtime.python_ops.texts import texts_of_the_call

Array: TypeAlias = "NDArray[Any]"

# Plain and scientific, and what no digits can say; Python's own `float` takes more.
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity|nan)\s*", re.IGNORECASE | re.ASCII)
_INTEGER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
# Of more, Python may refuse to make an integer.
_MOST_DIGITS = sys.int_info.str_digits_check_threshold


def text_concat(x: Array, y: Array) -> tuple[Array, ...]:
    """`dl.text_concat`."""
    texts = texts_of_the_call()
    a, b = np.broadcast_arrays(texts.of(x), texts.of(y))
    return (texts.numbers(np.asarray(a + b, object)),)


def text_split(x: Array, delimiter: Array, *, most: int | None = None) -> tuple[Array, ...]:
    """`dl.text_split`."""
    texts = texts_of_the_call()
    between = str(texts.of(delimiter)[()]) or None
    rows = [text.split(between, -1 if most is None else most) for text in texts.of(x).reshape(-1).tolist()]
    width = max(map(len, rows), default=0)
    flat = np.array([part for row in rows for part in (*row, *[""] * (width - len(row)))], object)
    counts = np.array([len(row) for row in rows], np.int64).reshape(x.shape)
    return texts.numbers(flat.reshape(*x.shape, width)), counts


def text_normalize(
    x: Array, stopwords: Array, *, match_case: bool = False, lower: bool = False, upper: bool = False
) -> tuple[Array, ...]:
    """`dl.text_normalize`."""
    texts = texts_of_the_call()
    compared: Callable[[str], str] = str if match_case else str.lower
    dropped = {compared(word) for word in texts.of(stopwords).tolist()}
    kept = [text for text in texts.of(x).reshape(-1).tolist() if compared(text) not in dropped] or [""]
    cased = [text.lower() if lower else text.upper() if upper else text for text in kept]
    return (texts.numbers(np.array(cased, object)).reshape(*x.shape[:-1], len(cased)),)


def text_match(x: Array, pattern: Array) -> tuple[Array, ...]:
    """`dl.text_match`."""
    texts = texts_of_the_call()
    expression = re.compile(str(texts.of(pattern)[()]))
    found = [expression.fullmatch(text) is not None for text in texts.of(x).reshape(-1).tolist()]
    return (np.array(found, bool).reshape(x.shape),)


def text_unique(x: Array, *, keep_order: bool = False) -> tuple[Array, ...]:
    """`dl.text_unique`."""
    texts = texts_of_the_call()
    y, first, inverse, counts = np.unique(texts.of(x), return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable") if keep_order else np.arange(len(y))
    found = y[order], first[order], np.argsort(order)[inverse.reshape(-1)], counts[order]
    return texts.numbers(found[0]), *(a.astype(np.int64) for a in found[1:])


def number_to_text(x: Array) -> tuple[Array, ...]:
    """`dl.number_to_text`."""
    written = np.array([_written(number) for number in x.reshape(-1).tolist()], object)
    return (texts_of_the_call().numbers(written).reshape(x.shape),)


def text_to_number(x: Array, *, to: str) -> tuple[Array, ...]:
    """`dl.text_to_number`. Raises DTypeError for a text that is no number, or none that the dtype has."""
    dtype = named_dtype(to)
    read = [_read(text, dtype) for text in texts_of_the_call().of(x).reshape(-1).tolist()]
    with np.errstate(over="ignore"):
        return (np.array(read, np.float64 if dtype.kind in "fV" else dtype).astype(dtype).reshape(x.shape),)


def _written(number: bool | int | float) -> str:
    if isinstance(number, float):
        # Eight digits, as ONNX Runtime writes.
        return f"{number:.8g}" if np.isfinite(number) else "NaN" if number != number else "INF" if number > 0 else "-INF"
    return str(int(number))


def _read(text: str, dtype: np.dtype[Any]) -> bool | int | float:
    if not _NUMBER.fullmatch(text):
        raise DTypeError(f"{short(text)} is no number; expected one such as 3, -0.5 or 1e-3, INF or NaN")
    if dtype.kind in "fV":
        return float(text)
    is_integer = len(text) <= _MOST_DIGITS and _INTEGER.fullmatch(text)
    number: int | float = int(text) if is_integer else float(text)
    if dtype.kind == "b":
        return number != 0
    limits = np.iinfo(dtype)
    if not limits.min - 1 < number < limits.max + 1:
        raise DTypeError(f"{short(text)} is no {dtype}, whose numbers are {limits.min} to {limits.max}")
    return int(number)
