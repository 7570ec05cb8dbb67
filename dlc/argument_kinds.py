"""What a parameter takes, by its annotation: `int | Sequence[int]` as a question about a value, and in words."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args, get_origin

import numpy as np

from dlc.dims import Dim


@dataclass(frozen=True)
class Kind:
    """`one` value in words, and several of them; whether a value is one; of a list, what its parts are.

    `scalar`: as an element of an array is one.
    """

    one: str
    several: str
    holds: Callable[[object], bool]
    part: Kind | None = None
    scalar: bool = False


def kind_of(annotation: str, names: Mapping[str, object]) -> Kind | None:
    """What an annotation asks for, in which these names are known; None where anything will do.

    A class among the names asks for its instances, a Literal for one of its values.
    """
    return _kind(ast.parse(annotation, mode="eval").body, names)


def _kind(node: ast.expr, names: Mapping[str, object]) -> Kind | None:
    match node:
        case ast.Constant(value=None):
            return _NONE
        case ast.Name(id=name):
            return _NAMED[name] if name in _NAMED else _defined(names.get(name))
        case ast.BinOp(left=left, right=right):
            return _either(_kind(left, names), _kind(right, names))
        case ast.Subscript(value=ast.Name(id="Sequence" | "list" | "Iterable"), slice=part):
            return _listed(_kind(part, names))
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[part, ast.Constant(value=x)])) if x is ...:
            return _listed(_kind(part, names))
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
            return _tuple([_kind(part, names) for part in parts])
        case ast.Subscript(value=ast.Name(id=name)):
            return _NAMED[name] if name in _NAMED else _defined(names.get(name))
        case _:
            return None


def _defined(meaning: object) -> Kind | None:
    """What a name asks for that the function's own module defines."""
    if get_origin(meaning) is Literal:
        values = get_args(meaning)
        words = f"of {', '.join(map(repr, values))}"
        return Kind(f"one {words}", words, lambda value: isinstance(value, str) and value in values)
    if isinstance(meaning, type) and meaning is not Any:
        return Kind(f"a {meaning.__name__}", f"of {meaning.__name__}", lambda value: isinstance(value, meaning))
    return None


def _either(first: Kind | None, second: Kind | None) -> Kind | None:
    if first is None or second is None:
        return None
    return Kind(
        f"{first.one} or {second.one}", f"{first.several} or {second.several}", lambda x: first.holds(x) or second.holds(x)
    )


def _listed(part: Kind | None) -> Kind:
    """A list, or anything that can be iterated over, of what `part` says. What can be only once is left as it is."""

    def holds(value: object) -> bool:
        if is_arrays_rank(value, 0) or isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
            return False
        if part is not None and is_traced(value):
            return not part.scalar or is_arrays_rank(value, 1)
        if part is None or not isinstance(value, Collection | np.ndarray):
            return True
        return all(map(part.holds, cast("Collection[object]", value)))

    name = f"a list of {part.several}" if part else "a list"
    return Kind(name, f"lists of {part.several}" if part else "lists", holds, part)


def _tuple(parts: Sequence[Kind | None]) -> Kind:
    """A pair, or so many, of what `parts` say."""

    def holds(value: object) -> bool:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return False
        given = cast("Sequence[object]", value)
        return len(given) == len(parts) and all(p is None or p.holds(v) for p, v in zip(parts, given, strict=True))

    words = ", ".join("anything" if p is None else p.one for p in parts)
    return Kind(f"a tuple of {len(parts)} ({words})", f"tuples of {len(parts)} ({words})", holds)


def is_arrays_rank(value: object, rank: int) -> bool:
    """Whether it is an array, or stands for one, of so many axes."""
    return getattr(value, "ndim", None) == rank


def is_traced(value: object) -> bool:
    """Whether it stands for an array, as a traced function has them, or is one of another library."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.ndarray | np.generic)


def _is_given(value: object) -> bool:
    """Whether it is an array, not a number or a list."""
    return not isinstance(value, np.generic) and hasattr(value, "shape") and _is_array(value)


def _is_array(value: object) -> bool:
    """Whether it is an array of numbers or stands for one, is a number of a dtype that arrays have, or lists of them."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufcV" and value.dtype.names is None
    if isinstance(value, Dim | bool | float | complex):
        return True
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 64
    if isinstance(value, list | tuple):
        parts = cast("Sequence[object]", value)
        return all(map(_is_array, parts)) and len({_shape(part) for part in parts}) < 2
    return any(hasattr(value, name) for name in ("__array__", "__dlpack__", "shape"))


def _shape(value: object) -> tuple[object, ...]:
    """The shape of what is an array."""
    if isinstance(value, list | tuple):
        parts = cast("Sequence[object]", value)
        return (len(parts), *(_shape(parts[0]) if parts else ()))
    return tuple(getattr(value, "shape", ()))


def _is_whole(value: object) -> bool:
    if isinstance(value, Dim):
        return True
    if is_traced(value):
        # Whether a traced number will do is said where its elements are asked for.
        return is_arrays_rank(value, 0)
    if getattr(value, "ndim", 0):
        return False
    try:
        return -(1 << 63) <= operator.index(cast(Any, value)) < 1 << 63
    except TypeError:
        return False


def _is_real(value: object) -> bool:
    is_number = isinstance(value, Dim) or hasattr(value, "__float__") or hasattr(value, "__index__")
    return is_number and not isinstance(value, complex) and getattr(value, "ndim", 0) == 0


def _is_truth(value: object) -> bool:
    return isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1))


def _is_size(value: object) -> bool:
    """Whether it is a number of elements that could be in memory: no machine addresses more."""
    if not _is_whole(value) or isinstance(value, Dim) or is_traced(value):
        return _is_whole(value)
    return 0 <= operator.index(cast(Any, value)) < 1 << 47


def _is_dtype(value: object) -> bool:
    try:
        dtype = np.dtype(cast(Any, value))
        return dtype.kind in "biufc" or (dtype.kind == "V" and not issubclass(dtype.type, np.void))
    except (TypeError, ValueError):
        return False


_NONE = Kind("None", "None", lambda value: value is None)
_WHOLE = Kind("a whole number", "whole numbers", _is_whole, scalar=True)
_SIZE = Kind("a whole number from 0 on", "whole numbers from 0 on", _is_size, scalar=True)
_SIZES = _either(_WHOLE, _listed(_WHOLE))
_STRING = Kind("a string", "strings", lambda value: isinstance(value, str))
_REAL = Kind("a number", "numbers", _is_real, scalar=True)
_ARRAY = Kind("an array, a number or lists of them", "arrays, numbers or lists of them", _is_array)
_GIVEN = Kind("an array", "arrays", _is_given)
_FUNCTION = Kind("a function", "functions", callable)
_MAPPING = Kind("a dict", "dicts", lambda value: isinstance(value, Mapping))
_NAMED: Mapping[str, Kind | None] = {
    "bool": Kind("True or False", "bools", _is_truth),
    "int": _WHOLE,
    "float": _REAL,
    "str": _STRING,
    "ArrayLike": _ARRAY,
    "AnyNumbers": _ARRAY,
    "Any": None,
    "Array": _GIVEN,
    "Arrays": _listed(_ARRAY),
    "Axes": _either(_SIZES, _NONE),
    "Operand": _GIVEN,
    "Padding": _either(_STRING, _listed(_tuple([_WHOLE, _WHOLE]))),
    "Shape": _either(_SIZE, _listed(_SIZE)),
    "Size": _SIZE,
    "Tracer": Kind("a traced array", "traced arrays", is_traced),
    "AnyDType": Kind("a dtype, such as dlc.numpy.float32, or its name", "dtypes", _is_dtype),
    "Backend": Kind("a target", "targets", lambda value: hasattr(value, "takes_device_arrays")),
    "Callable": _FUNCTION,
    "Mapping": _MAPPING,
    "Function": _FUNCTION,
}
