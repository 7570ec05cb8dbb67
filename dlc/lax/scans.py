"""Loops over the elements of arrays, which hand a carry on and collect what each step makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.dims import is_static
from dlc.errors import DlcError, ShapeError, UnsupportedError
from dlc.frontend.pytree import flatten, unflatten
from dlc.frontend.trace import Trace, Tracer, current_trace, tracing
from dlc.lax.agreement import Kind, Leaves
from dlc.lax.bodies import Loop, require_functions
from dlc.numpy.apply import convert, dtype_of, operand, refuse, sizes_of
from dlc.numpy.functions.joining import stack

__all__ = ["map", "scan"]


def scan(
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """The last carry and all results of `carry, y = f(carry, x)`, from `init` on, for one `x` after the other.

    An `x` is what the arrays in `xs` hold at one place of axis 0; without arrays there are `length` steps. The `y` are
    stacked along a new axis 0, in the places of their `x`; `reverse` goes from the last to the first. A carry keeps its
    structure, shapes and dtypes; a number in `init` takes the dtype that `f` makes of it. `unroll=True` writes all steps out;
    otherwise the compiler decides.

    Raises ShapeError for arrays of different lengths or none, ShapeError or DTypeError, naming every place, for a carry that
    does not keep its shape and dtype, and UnsupportedError for other values of `unroll`.
    """
    require_functions("dlc.lax.scan", f=f)
    return _scan("dlc.lax.scan", f, init, xs, length, reverse, unroll)


def map(f: Callable[[Any], Any], xs: Any, /) -> Any:
    """`f(x)` for each `x` that the arrays in `xs` hold at one place of axis 0, stacked along a new axis 0.

    Raises ShapeError for arrays of different lengths or none.
    """
    require_functions("dlc.lax.map", f=f)
    return _scan("dlc.lax.map", lambda _, x: ((), f(x)), (), xs, None, False, 1)[1]


def _scan(
    where: str, f: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None, reverse: bool, unroll: int | bool
) -> tuple[Any, Any]:
    sequences = Leaves.of(where, "xs{}", xs)
    length = _length(sequences, length)
    if unroll is not True and unroll != 1:
        refuse(
            UnsupportedError(f"{where}: unroll={unroll!r}; expected 1, which leaves it to the compiler, or True for all steps")
        )
    trace = current_trace()
    if length and (trace is None or trace.steps or unroll is True):
        return _stepwise(trace, where, f, init, sequences, length, reverse)
    if trace is not None:
        return _traced(trace, where, f, init, sequences, length, reverse)
    # No step is taken: tracing one says what its results would have been.
    scratch = Trace()
    with tracing(scratch):
        arrays, tree = flatten(_traced(scratch, where, f, init, sequences, length, reverse)[1])
    return init, unflatten(tree, iter([np.zeros(array.shape, array.dtype) for array in arrays]))


def _length(sequences: Leaves, length: int | None) -> int:
    """How many steps there are. Raises ShapeError where that is not known, or known differently."""
    where, lengths = sequences.where, dict[str, int]()
    if length is not None:
        lengths["length"] = int(sizes_of(f"{where}: length", length)[0])
    for path, leaf in zip(sequences.paths, sequences.leaves, strict=True):
        shape = operand(leaf).shape
        if not shape:
            refuse(ShapeError(f"{where}: {path} has no axes; expected an array of elements along axis 0"))
        lengths[path] = shape[0]
    if not lengths:
        refuse(ShapeError(f"{where}: neither arrays in xs nor a length; give one of them"))
    first = next(iter(lengths.values()))
    if len(set(lengths.values())) > 1 or (is_static([first]) and first < 0):
        said = ", ".join(f"{name}: {n}" for name, n in lengths.items())
        refuse(ShapeError(f"{where}: the numbers of steps differ or are negative ({said}); axis 0 of all arrays in xs is one"))
    return first


def _pair(where: str, returned: Any) -> tuple[Any, Any]:
    pair = cast("Sequence[Any]", returned)
    if not isinstance(returned, tuple | list) or len(pair) != 2:
        got = flatten(pair)[1]
        refuse(DlcError(f"{where}: f returned {got}; expected a pair: the next carry, and what is collected (or None)"))
    return pair[0], pair[1]


def _stepwise(
    trace: Trace | None, where: str, f: Callable[[Any, Any], Any], init: Any, xs: Leaves, length: int, reverse: bool
) -> tuple[Any, Any]:
    """The scan as a Python loop."""
    loop = Loop(trace, where, "carry{} from f", "init{}", init) if trace is not None else None
    sequences: Sequence[Any] = [trace.value(leaf) for leaf in xs.leaves] if trace is not None and trace.steps else xs.leaves
    carry, collected = loop.value(loop.first) if loop is not None else init, list[Leaves]()
    for k in reversed(range(length)) if reverse else range(length):
        carry, y = _pair(where, f(carry, unflatten(xs.tree, iter([leaf[k] for leaf in sequences]))))
        carry = loop.following(carry) if loop is not None else carry
        made = Leaves.of(where, f"result{{}} from f in step {k}", y)
        collected.append(made.in_order_of(collected[0]) if collected else made)
    if reverse:
        collected.reverse()
    columns = zip(*(made.leaves for made in collected), strict=True)
    stacked = [stack([convert(x, dtype_of(*elements)) for x in elements]) for elements in columns]
    return carry, unflatten(collected[0].tree, iter(stacked))


def _traced(
    trace: Trace, where: str, f: Callable[[Any, Any], Any], init: Any, xs: Leaves, length: int, reverse: bool
) -> tuple[Any, Any]:
    """The scan as a loop of the program."""
    sequences = [trace.value(leaf) for leaf in xs.leaves]
    loop = Loop(trace, where, "carry{} from f", "init{}", init)
    collected: list[Leaves] = []

    def step(carry: Any, elements: list[Tracer]) -> tuple[Any, Leaves]:
        carry, y = _pair(where, f(carry, unflatten(xs.tree, iter(elements))))
        return carry, Leaves.of(where, "result{} from f", y)

    def finish(following: list[Tracer], y: Leaves) -> Sequence[Any]:
        collected.append(y)
        return [*following, *y.leaves]

    body = loop.body([Kind(s.shape[1:], s.dtype) for s in sequences], step, finish)
    arguments = [x.value for x in (*loop.first, *sequences)]
    results = trace.insert(dl.ScanOp.of(arguments, body, len(loop.kinds), length, reverse))
    last, made = results[: len(loop.kinds)], results[len(loop.kinds) :]
    return loop.result(last), unflatten(collected[-1].tree, iter(made))
