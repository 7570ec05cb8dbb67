"""How operators on text are drawn. All that they make is exact, and so is what a graph of them computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from dlc.dialects.dl.base import Array
from tests.fuzz.draws import SMALL, Unsuitable
from tests.fuzz.graph_recipes import Recipe
from tests.fuzz.random_graph import TEXT, GraphValue, RandomGraph
from tests.ops.sample import BOOL, I32, I64

_WORDS = ("", "a", "ab", "Ab", "a b", " a  b ", "a,b", "a,,b", "7", "-2.5", "ünï", "日本", "the", "the end", "x" * 20)
_NUMBERS = ("0", "1", "-3", "2.5", "1e2", "-0.125", "77")


def _texts(g: RandomGraph, shape: Sequence[int], among: Sequence[str] = _WORDS) -> Array:
    made = np.empty(tuple(shape), TEXT)
    for place in np.ndindex(*made.shape):
        made[place] = g.random.choice(among)
    return made


def _shape(g: RandomGraph, *ranks: int) -> tuple[int, ...]:
    return tuple(g.random.choice((0, *SMALL)) for _ in range(g.random.choice(ranks)))


def _text(g: RandomGraph, *ranks: int) -> GraphValue:
    """Text of one of these ranks: one that there is, or a new one."""
    found = [v for v in g.values if v.dtype == TEXT and len(v.shape) in ranks]
    return g.random.choice(found) if found and g.random.random() < 0.7 else g.given(_texts(g, _shape(g, *ranks)))


def _any(g: RandomGraph) -> GraphValue:
    return _text(g, 0, 1, 2)


def _like(g: RandomGraph, x: GraphValue) -> GraphValue:
    shape = [1 if g.random.random() < 0.2 else s for s in x.shape]
    found = [v for v in g.values if v.dtype == TEXT and v.shape == x.shape]
    return g.random.choice(found) if g.flag() else g.given(_texts(g, shape))


def _concat(g: RandomGraph, op: str) -> GraphValue:
    x = _any(g)
    return g.add(op, *g.random.sample([x, _like(g, x)], 2))


def _split(g: RandomGraph, op: str) -> GraphValue:
    settings = {"delimiter": g.random.choice(["", ",", " ", "b"]), "maxsplit": g.random.choice([1, 2])}
    x = _text(g, 0, 1)
    # Of no texts there are no parts; `onnx.reference` knows no shape for them.
    if 0 in x.shape:
        raise Unsuitable
    return g.add(op, x, results=2, **{name: s for name, s in settings.items() if g.flag()})


def _normalizer(g: RandomGraph, op: str) -> GraphValue:
    # `onnx.reference` leaves out what is empty, and accents; what has blanks in it is no word to it, nor what has another case.
    among = [w for w in _WORDS if w and " " not in w and w.isascii()]
    x = g.given(_texts(g, (g.random.choice(SMALL),), among))
    words = g.random.sample(among, g.random.choice([1, 2]))
    case = g.random.choice(["LOWER", "UPPER", "NONE"])
    settings = {"stopwords": words, "is_case_sensitive": 1} if g.flag() else {"is_case_sensitive": int(g.flag())}
    return g.add(op, x, case_change_action=case, **settings)


def _match(g: RandomGraph, op: str) -> GraphValue:
    return g.add(op, _any(g), pattern=g.random.choice([r"[a-z ]*", r"\w+", r"-?\d+(\.\d+)?", ".*b.*", ""]))


def _to_numbers(g: RandomGraph, op: str) -> GraphValue:
    if g.opset < 9:
        raise Unsuitable
    x = g.given(_texts(g, _shape(g, 0, 1, 2), _NUMBERS))
    return g.add(op, x, to=g.random.choice([TensorProto.FLOAT, TensorProto.DOUBLE]))


def _from_numbers(g: RandomGraph, op: str) -> GraphValue:
    if g.opset < 9:
        raise Unsuitable
    return g.add(
        op, g.given(g.numbers.integers(-99, 100, _shape(g, 0, 1, 2)).astype(g.random.choice([I32, I64]))), to=TensorProto.STRING
    )


def _equal(g: RandomGraph, op: str) -> GraphValue:
    if g.opset < 19:
        raise Unsuitable
    x = _any(g)
    return g.add(op, x, _like(g, x))


def _moved(g: RandomGraph, op: str) -> GraphValue:
    """What has text among the types that it takes anyway."""
    x = _text(g, 1, 2)
    match op:
        case "Gather":
            if not x.shape[0]:
                raise Unsuitable
            return g.add(op, x, g.given(g.numbers.integers(0, x.shape[0], _shape(g, 0, 1))), axis=0)
        case "Where":
            return g.add(op, g.fresh(BOOL, x.shape), x, _like(g, x))
        case "Concat":
            return g.add(op, x, g.given(_texts(g, (2, *x.shape[1:]))), axis=0)
        case "Reshape":
            return g.add(op, x, shape=np.int64([*x.shape, 1] if g.flag() else [x.array.size]))
        case "Expand":
            return g.add(op, x, shape=np.int64([g.random.choice(SMALL), *x.shape]))
        case "Slice":
            return g.add(op, x, starts=np.int64([g.random.choice([0, 1])]), ends=np.int64([9]), axes=np.int64([0]))
        case _:
            return g.add(op, x)


TEXTS: list[tuple[str, Recipe]] = [
    ("StringConcat", _concat),
    ("StringSplit", _split),
    ("StringNormalizer", _normalizer),
    ("RegexFullMatch", _match),
    ("Cast", _to_numbers),
    ("Cast", _from_numbers),
    ("Equal", _equal),
    *((op, _moved) for op in ("Gather", "Where", "Concat", "Reshape", "Expand", "Slice", "Transpose", "Identity", "Shape")),
]
