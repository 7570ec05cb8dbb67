"""Parse parameter annotations such as `int | Sequence[int]` into predicates and descriptions for argument validation."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args, get_origin

import numpy as np

from dlc.shapes.traced_dims import TracedDim


@dataclass(frozen=True)
class ArgumentKind:
    """A set of accepted values: `singular` and `plural` describe it in error messages, `accepts` tests a value.

    `element` is the kind of a list's elements. `scalar`: the elements of an array are accepted too.
    """

    singular: str
    plural: str
    accepts: Callable[[object], bool]
    element: ArgumentKind | None = None
    scalar: bool = False


def parse_annotation(annotation: str, names: Mapping[str, object]) -> ArgumentKind | None:
    """Return the kind that an annotation describes, or None if it accepts anything.

    `names` resolves the names in the annotation. A class accepts its instances, a Literal one of its values.
    """
    return _parse_node(ast.parse(annotation, mode="eval").body, names)


def _parse_node(node: ast.expr, names: Mapping[str, object]) -> ArgumentKind | None:
    match node:
        case ast.Constant(value=None):
            return _NONE
        case ast.Name(id=name):
            return _KINDS_BY_NAME[name] if name in _KINDS_BY_NAME else _named_kind(names.get(name))
        case ast.BinOp(left=left, right=right):
            return _union(_parse_node(left, names), _parse_node(right, names))
        case ast.Subscript(value=ast.Name(id="Sequence" | "list" | "Iterable"), slice=element):
            return _list_of(_parse_node(element, names))
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[element, ast.Constant(value=x)])) if x is ...:
            return _list_of(_parse_node(element, names))
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=elements)):
            return _tuple_of([_parse_node(element, names) for element in elements])
        case ast.Subscript(value=ast.Name(id=name)):
            return _KINDS_BY_NAME[name] if name in _KINDS_BY_NAME else _named_kind(names.get(name))
        case _:
            return None


def _named_kind(definition: object) -> ArgumentKind | None:
    """Return the kind of a name that is defined by the function's own module."""
    if get_origin(definition) is Literal:
        values = get_args(definition)
        text = f"of {', '.join(map(repr, values))}"
        return ArgumentKind(f"one {text}", text, lambda value: isinstance(value, str) and value in values)
    if isinstance(definition, type) and definition is not Any:
        return ArgumentKind(
            f"a {definition.__name__}", f"of {definition.__name__}", lambda value: isinstance(value, definition)
        )
    return None


def _union(first: ArgumentKind | None, second: ArgumentKind | None) -> ArgumentKind | None:
    if first is None or second is None:
        return None
    return ArgumentKind(
        f"{first.singular} or {second.singular}",
        f"{first.plural} or {second.plural}",
        lambda x: first.accepts(x) or second.accepts(x),
    )


def _list_of(element: ArgumentKind | None) -> ArgumentKind:
    """Return the kind of lists and other iterables of `element`; iterators are not checked, which would consume them."""

    def accepts(value: object) -> bool:
        if has_rank(value, 0) or isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
            return False
        if element is not None and is_traced(value):
            return not element.scalar or has_rank(value, 1)
        if element is None or not isinstance(value, Collection | np.ndarray):
            return True
        return all(map(element.accepts, cast("Collection[object]", value)))

    name = f"a list of {element.plural}" if element else "a list"
    return ArgumentKind(name, f"lists of {element.plural}" if element else "lists", accepts, element)


def _tuple_of(elements: Sequence[ArgumentKind | None]) -> ArgumentKind:
    """Return the kind of tuples with exactly these elements."""

    def accepts(value: object) -> bool:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return False
        items = cast("Sequence[object]", value)
        return len(items) == len(elements) and all(
            kind is None or kind.accepts(item) for kind, item in zip(elements, items, strict=True)
        )

    text = ", ".join("anything" if kind is None else kind.singular for kind in elements)
    return ArgumentKind(f"a tuple of {len(elements)} ({text})", f"tuples of {len(elements)} ({text})", accepts)


def has_rank(value: object, rank: int) -> bool:
    """Return whether a value is an array, or a traced array, with this number of axes."""
    return getattr(value, "ndim", None) == rank


def is_traced(value: object) -> bool:
    """Return whether a value is a traced array or an array of another library."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.ndarray | np.generic)


def _is_array_object(value: object) -> bool:
    """Return whether a value is an array, as opposed to a scalar or a list."""
    return not isinstance(value, np.generic) and hasattr(value, "shape") and _is_array(value)


def _is_array(value: object) -> bool:
    """Return whether a value is an array or traced array, a scalar of a supported dtype, or nested lists of these."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufcV" and value.dtype.names is None
    if isinstance(value, TracedDim | bool | float | complex):
        return True
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 64
    if isinstance(value, list | tuple):
        elements = cast("Sequence[object]", value)
        return all(map(_is_array, elements)) and len({_shape(element) for element in elements}) < 2
    return any(hasattr(value, name) for name in ("__array__", "__dlpack__", "shape"))


def _shape(value: object) -> tuple[object, ...]:
    """Return the shape of an array or of nested lists."""
    if isinstance(value, list | tuple):
        elements = cast("Sequence[object]", value)
        return (len(elements), *(_shape(elements[0]) if elements else ()))
    return tuple(getattr(value, "shape", ()))


def _is_integer(value: object) -> bool:
    if isinstance(value, TracedDim):
        return True
    if is_traced(value):
        # A traced scalar of any dtype passes here; it is checked where its value is needed.
        return has_rank(value, 0)
    if getattr(value, "ndim", 0):
        return False
    try:
        return -(1 << 63) <= operator.index(cast(Any, value)) < 1 << 63
    except TypeError:
        return False


def _is_number(value: object) -> bool:
    is_python_scalar = isinstance(value, TracedDim) or hasattr(value, "__float__") or hasattr(value, "__index__")
    return is_python_scalar and not isinstance(value, complex) and getattr(value, "ndim", 0) == 0


def _is_boolean(value: object) -> bool:
    return isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1))


def _is_size(value: object) -> bool:
    """Return whether a value is a possible dimension size; no machine addresses more than 2^47 elements."""
    if not _is_integer(value) or isinstance(value, TracedDim) or is_traced(value):
        return _is_integer(value)
    return 0 <= operator.index(cast(Any, value)) < 1 << 47


def _is_dtype(value: object) -> bool:
    try:
        dtype = np.dtype(cast(Any, value))
        return dtype.kind in "biufc" or (dtype.kind == "V" and not issubclass(dtype.type, np.void))
    except (TypeError, ValueError):
        return False


_NONE = ArgumentKind("None", "None", lambda value: value is None)
_INTEGER = ArgumentKind("an integer", "integers", _is_integer, scalar=True)
_SIZE = ArgumentKind("an integer >= 0", "integers >= 0", _is_size, scalar=True)
_SIZES = _union(_INTEGER, _list_of(_INTEGER))
_STRING = ArgumentKind("a string", "strings", lambda value: isinstance(value, str))
_NUMBER = ArgumentKind("a number", "numbers", _is_number, scalar=True)
_ARRAY = ArgumentKind("an array, a number or lists of them", "arrays, numbers or lists of them", _is_array)
_ARRAY_OBJECT = ArgumentKind("an array", "arrays", _is_array_object)
_FUNCTION = ArgumentKind("a function", "functions", callable)
_MAPPING = ArgumentKind("a dict", "dicts", lambda value: isinstance(value, Mapping))
_KINDS_BY_NAME: Mapping[str, ArgumentKind | None] = {
    "bool": ArgumentKind("True or False", "bools", _is_boolean),
    "int": _INTEGER,
    "float": _NUMBER,
    "str": _STRING,
    "ArrayLike": _ARRAY,
    "AnyNumbers": _ARRAY,
    "Any": None,
    "Array": _ARRAY_OBJECT,
    "Arrays": _list_of(_ARRAY),
    "Axes": _union(_SIZES, _NONE),
    "Operand": _ARRAY_OBJECT,
    "Padding": _union(_STRING, _list_of(_tuple_of([_INTEGER, _INTEGER]))),
    "Shape": _union(_SIZE, _list_of(_SIZE)),
    "Size": _SIZE,
    "Tracer": ArgumentKind("a traced array", "traced arrays", is_traced),
    "AnyDType": ArgumentKind("a dtype, such as dlc.numpy.float32, or its name", "dtypes", _is_dtype),
    "Backend": ArgumentKind("a target", "targets", lambda value: hasattr(value, "takes_device_arrays")),
    "Callable": _FUNCTION,
    "Mapping": _MAPPING,
    "Function": _FUNCTION,
}
