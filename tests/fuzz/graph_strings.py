"""Recipes for string operators; all of their results are exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from dlc.dialects.dl.base import Array
from dlc.testing.sample import BOOL, I32, I64
from tests.fuzz.random_graph import STRING, GraphValue, RandomGraph, Recipe
from tests.fuzz.random_values import SMALL_SIZES, Unsuitable

_STRINGS = ("", "a", "ab", "Ab", "a b", " a  b ", "a,b", "a,,b", "7", "-2.5", "ünï", "日本", "the", "the end", "x" * 20)
_NUMERIC_STRINGS = ("0", "1", "-3", "2.5", "1e2", "-0.125", "77")


def _random_strings(g: RandomGraph, shape: Sequence[int], among: Sequence[str] = _STRINGS) -> Array:
    array = np.empty(tuple(shape), STRING)
    for index in np.ndindex(*array.shape):
        array[index] = g.random.choice(among)
    return array


def _shape(g: RandomGraph, *ranks: int) -> tuple[int, ...]:
    return tuple(g.random.choice((0, *SMALL_SIZES)) for _ in range(g.random.choice(ranks)))


def _string_value(g: RandomGraph, *ranks: int) -> GraphValue:
    """Return strings of one of these ranks: an existing value or a new one."""
    candidates = [v for v in g.values if v.dtype == STRING and len(v.shape) in ranks]
    return (
        g.random.choice(candidates)
        if candidates and g.random.random() < 0.7
        else g.source(_random_strings(g, _shape(g, *ranks)))
    )


def _any(g: RandomGraph) -> GraphValue:
    return _string_value(g, 0, 1, 2)


def _like(g: RandomGraph, x: GraphValue) -> GraphValue:
    shape = [1 if g.random.random() < 0.2 else s for s in x.shape]
    candidates = [v for v in g.values if v.dtype == STRING and v.shape == x.shape]
    return g.random.choice(candidates) if g.flag() else g.source(_random_strings(g, shape))


def _concat(g: RandomGraph, op: str) -> GraphValue:
    x = _any(g)
    return g.add(op, *g.random.sample([x, _like(g, x)], 2))


def _split(g: RandomGraph, op: str) -> GraphValue:
    settings = {"delimiter": g.random.choice(["", ",", " ", "b"]), "maxsplit": g.random.choice([1, 2])}
    x = _string_value(g, 0, 1)
    # `onnx.reference` does not define the result's shape for an empty input.
    if 0 in x.shape:
        raise Unsuitable
    return g.add(op, x, results=2, **{name: s for name, s in settings.items() if g.flag()})


def _normalizer(g: RandomGraph, op: str) -> GraphValue:
    # `onnx.reference` removes empty strings and accents, and does not match stopwords with spaces or in another case.
    among = [w for w in _STRINGS if w and " " not in w and w.isascii()]
    x = g.source(_random_strings(g, (g.random.choice(SMALL_SIZES),), among))
    words = g.random.sample(among, g.random.choice([1, 2]))
    case = g.random.choice(["LOWER", "UPPER", "NONE"])
    settings = {"stopwords": words, "is_case_sensitive": 1} if g.flag() else {"is_case_sensitive": int(g.flag())}
    return g.add(op, x, case_change_action=case, **settings)


def _match(g: RandomGraph, op: str) -> GraphValue:
    return g.add(op, _any(g), pattern=g.random.choice([r"[a-z ]*", r"\w+", r"-?\d+(\.\d+)?", ".*b.*", ""]))


def _to_floats(g: RandomGraph, op: str) -> GraphValue:
    if g.opset < 9:
        raise Unsuitable
    x = g.source(_random_strings(g, _shape(g, 0, 1, 2), _NUMERIC_STRINGS))
    return g.add(op, x, to=g.random.choice([TensorProto.FLOAT, TensorProto.DOUBLE]))


def _from_integers(g: RandomGraph, op: str) -> GraphValue:
    if g.opset < 9:
        raise Unsuitable
    return g.add(
        op, g.source(g.rng.integers(-99, 100, _shape(g, 0, 1, 2)).astype(g.random.choice([I32, I64]))), to=TensorProto.STRING
    )


def _equal(g: RandomGraph, op: str) -> GraphValue:
    if g.opset < 19:
        raise Unsuitable
    x = _any(g)
    return g.add(op, x, _like(g, x))


def _data_movement(g: RandomGraph, op: str) -> GraphValue:
    """Operators that move elements of any dtype, strings included."""
    x = _string_value(g, 1, 2)
    match op:
        case "Gather":
            if not x.shape[0]:
                raise Unsuitable
            return g.add(op, x, g.source(g.rng.integers(0, x.shape[0], _shape(g, 0, 1))), axis=0)
        case "Where":
            return g.add(op, g.fresh(BOOL, x.shape), x, _like(g, x))
        case "Concat":
            return g.add(op, x, g.source(_random_strings(g, (2, *x.shape[1:]))), axis=0)
        case "Reshape":
            return g.add(op, x, shape=np.int64([*x.shape, 1] if g.flag() else [x.array.size]))
        case "Expand":
            return g.add(op, x, shape=np.int64([g.random.choice(SMALL_SIZES), *x.shape]))
        case "Slice":
            return g.add(op, x, starts=np.int64([g.random.choice([0, 1])]), ends=np.int64([9]), axes=np.int64([0]))
        case _:
            return g.add(op, x)


STRING_OPS: list[tuple[str, Recipe]] = [
    ("StringConcat", _concat),
    ("StringSplit", _split),
    ("StringNormalizer", _normalizer),
    ("RegexFullMatch", _match),
    ("Cast", _to_floats),
    ("Cast", _from_integers),
    ("Equal", _equal),
    *(
        (op, _data_movement)
        for op in ("Gather", "Where", "Concat", "Reshape", "Expand", "Slice", "Transpose", "Identity", "Shape")
    ),
]
