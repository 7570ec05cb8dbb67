"""String ops. Strings are represented by indices into the string pool of the call (`string_pool.py`)."""

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
from dlc.runtime.python_ops.string_pool import current_string_pool

Array: TypeAlias = "NDArray[Any]"

# Decimal and scientific notation, infinities and NaN; Python's `float` accepts more.
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity|nan)\s*", re.IGNORECASE | re.ASCII)
_INTEGER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
# Python may raise an error for longer strings.
_MAX_INTEGER_DIGITS = sys.int_info.str_digits_check_threshold


def string_concat(x: Array, y: Array) -> tuple[Array, ...]:
    """`dl.string_concat`."""
    pool = current_string_pool()
    a, b = np.broadcast_arrays(pool.decode(x), pool.decode(y))
    return (pool.encode(np.asarray(a + b, object)),)


def string_split(x: Array, delimiter: Array, *, max_splits: int | None = None) -> tuple[Array, ...]:
    """`dl.string_split`."""
    pool = current_string_pool()
    separator = str(pool.decode(delimiter)[()]) or None
    rows = [text.split(separator, -1 if max_splits is None else max_splits) for text in pool.decode(x).reshape(-1).tolist()]
    width = max(map(len, rows), default=0)
    flat = np.array([substring for row in rows for substring in (*row, *[""] * (width - len(row)))], object)
    counts = np.array([len(row) for row in rows], np.int64).reshape(x.shape)
    return pool.encode(flat.reshape(*x.shape, width)), counts


def string_normalize(
    x: Array, stopwords: Array, *, match_case: bool = False, lower: bool = False, upper: bool = False
) -> tuple[Array, ...]:
    """`dl.string_normalize`."""
    pool = current_string_pool()
    normalize: Callable[[str], str] = str if match_case else str.lower
    dropped = {normalize(word) for word in pool.decode(stopwords).tolist()}
    words = [text for text in pool.decode(x).reshape(-1).tolist() if normalize(text) not in dropped] or [""]
    cased = [text.lower() if lower else text.upper() if upper else text for text in words]
    return (pool.encode(np.array(cased, object)).reshape(*x.shape[:-1], len(cased)),)


def regex_full_match(x: Array, pattern: Array) -> tuple[Array, ...]:
    """`dl.regex_full_match`."""
    pool = current_string_pool()
    expression = re.compile(str(pool.decode(pattern)[()]))
    matches = [expression.fullmatch(text) is not None for text in pool.decode(x).reshape(-1).tolist()]
    return (np.array(matches, bool).reshape(x.shape),)


def string_unique(x: Array, *, keep_order: bool = False) -> tuple[Array, ...]:
    """`dl.string_unique`."""
    pool = current_string_pool()
    y, first, inverse, counts = np.unique(pool.decode(x), return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable") if keep_order else np.arange(len(y))
    results = y[order], first[order], np.argsort(order)[inverse.reshape(-1)], counts[order]
    return pool.encode(results[0]), *(a.astype(np.int64) for a in results[1:])


def number_to_string(x: Array) -> tuple[Array, ...]:
    """`dl.number_to_string`."""
    strings = np.array([_format_number(number) for number in x.reshape(-1).tolist()], object)
    return (current_string_pool().encode(strings).reshape(x.shape),)


def string_to_number(x: Array, *, to: str) -> tuple[Array, ...]:
    """`dl.string_to_number`. Raises DTypeError for a string that is not a number, or not a value of the dtype."""
    dtype = named_dtype(to)
    values = [_parse_number(text, dtype) for text in current_string_pool().decode(x).reshape(-1).tolist()]
    with np.errstate(over="ignore"):
        return (np.array(values, np.float64 if dtype.kind in "fV" else dtype).astype(dtype).reshape(x.shape),)


def _format_number(number: bool | int | float) -> str:
    if isinstance(number, float):
        # Eight digits, like ONNX Runtime.
        return f"{number:.8g}" if np.isfinite(number) else "NaN" if number != number else "INF" if number > 0 else "-INF"
    return str(int(number))


def _parse_number(text: str, dtype: np.dtype[Any]) -> bool | int | float:
    if not _NUMBER.fullmatch(text):
        raise DTypeError(f"{short(text)} is not a number; expected one such as 3, -0.5 or 1e-3, INF or NaN")
    if dtype.kind in "fV":
        return float(text)
    is_integer = len(text) <= _MAX_INTEGER_DIGITS and _INTEGER.fullmatch(text)
    number: int | float = int(text) if is_integer else float(text)
    if dtype.kind == "b":
        return number != 0
    limits = np.iinfo(dtype)
    if not limits.min - 1 < number < limits.max + 1:
        raise DTypeError(f"{short(text)} does not fit {dtype}, whose range is {limits.min} to {limits.max}")
    return int(number)
