"""Loops over the leading axis of arrays that pass on a carry and stack a result of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dlc.dialects import dl
from dlc.errors import DlcError, ShapeError, UnsupportedError
from dlc.frontend.pytree import flatten, unflatten
from dlc.frontend.trace import Trace, Tracer, current_trace, tracing
from dlc.numpy.apply import as_shape, convert, operand, refuse, result_dtype
from dlc.numpy.functions.joining import stack
from dlc.shapes.dims import is_static
from dlc.shapes.traced_dims import untraced
from dlc.traced_functions.bodies import TracedLoop, require_functions
from dlc.traced_functions.type_agreement import AbstractValue, TracedTree

__all__ = ["map", "scan"]


def scan(
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Return the final carry and the stacked `y` of `carry, y = f(carry, x)`, from `init` on, for the slices `x` of `xs`.

    An `x` is a slice of the arrays in `xs` along axis 0; without arrays there are `length` steps. The `y` are stacked along a
    new axis 0, at the index of their `x`; `reverse` iterates from the last to the first. A carry keeps its structure, shapes
    and dtypes; a number in `init` takes the dtype that `f` returns for it. `unroll=True` unrolls all steps; otherwise the
    compiler decides.

    Raises ShapeError for arrays of different lengths or no arrays, ShapeError or DTypeError, naming every leaf, for a carry
    that changes its shape or dtype, and UnsupportedError for other values of `unroll`.
    """
    require_functions("dlc.lax.scan", f=f)
    return _scan("dlc.lax.scan", f, init, xs, length, reverse, unroll)


def map(f: Callable[[Any], Any], xs: Any, /) -> Any:
    """Return `f(x)` for each slice `x` of the arrays in `xs` along axis 0, stacked along a new axis 0.

    Raises ShapeError for arrays of different lengths or no arrays.
    """
    require_functions("dlc.lax.map", f=f)
    return _scan("dlc.lax.map", lambda _, x: ((), f(x)), (), xs, None, False, 1)[1]


def _scan(
    api_name: str, f: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None, reverse: bool, unroll: int | bool
) -> tuple[Any, Any]:
    sequences = TracedTree.of(api_name, "xs{}", xs)
    length = _length(sequences, length)
    if unroll is not True and unroll != 1:
        refuse(
            UnsupportedError(
                f"{api_name}: unroll={unroll!r}; expected 1, which lets the compiler decide, or True to unroll all steps"
            )
        )
    trace = current_trace()
    if length and (trace is None or trace.is_eager or unroll is True):
        return _evaluate_scan(trace, api_name, f, init, sequences, length, reverse)
    if trace is not None:
        return _trace_scan(trace, api_name, f, init, sequences, length, reverse)
    # Zero steps: trace one to find the shapes and dtypes of its results.
    scratch = Trace()
    with tracing(scratch):
        arrays, tree = flatten(_trace_scan(scratch, api_name, f, init, sequences, length, reverse)[1])
    return init, unflatten(tree, iter([np.zeros(array.shape, array.dtype) for array in arrays]))


def _length(sequences: TracedTree, length: int | None) -> int:
    """Return the number of steps. Raises ShapeError if it is unknown or ambiguous."""
    api_name, lengths = sequences.api_name, dict[str, int]()
    if length is not None:
        lengths["length"] = int(as_shape(f"{api_name}: length", length)[0])
    for path, leaf in zip(sequences.paths, sequences.leaves, strict=True):
        shape = untraced(operand(leaf).shape)
        if not shape:
            refuse(ShapeError(f"{api_name}: {path} has no axes; expected an array with the steps along axis 0"))
        lengths[path] = shape[0]
    if not lengths:
        refuse(ShapeError(f"{api_name}: neither arrays in xs nor a length; pass one of them"))
    num_steps = next(iter(lengths.values()))
    if len(set(lengths.values())) > 1 or (is_static([num_steps]) and num_steps < 0):
        lengths_text = ", ".join(f"{name}: {n}" for name, n in lengths.items())
        refuse(
            ShapeError(
                f"{api_name}: different or negative lengths ({lengths_text}); expected one size of axis 0 for all arrays in xs"
            )
        )
    return num_steps


def _pair(api_name: str, returned: Any) -> tuple[Any, Any]:
    pair = cast("Sequence[Any]", returned)
    if not isinstance(returned, tuple | list) or len(pair) != 2:
        got = flatten(pair)[1]
        refuse(DlcError(f"{api_name}: f returned {got}; expected a pair: the next carry, and the value to stack (or None)"))
    return pair[0], pair[1]


def _evaluate_scan(
    trace: Trace | None, api_name: str, f: Callable[[Any, Any], Any], init: Any, xs: TracedTree, length: int, reverse: bool
) -> tuple[Any, Any]:
    """Run the scan as a Python loop."""
    loop = TracedLoop(trace, api_name, "carry{} from f", "init{}", init) if trace is not None else None
    sequences: Sequence[Any] = [trace.value(leaf) for leaf in xs.leaves] if trace is not None and trace.is_eager else xs.leaves
    carry, step_results = loop.value(loop.initial_arrays) if loop is not None else init, list[TracedTree]()
    for k in reversed(range(length)) if reverse else range(length):
        carry, y = _pair(api_name, f(carry, unflatten(xs.tree, iter([leaf[k] for leaf in sequences]))))
        carry = loop.next_carry(carry) if loop is not None else carry
        step_result = TracedTree.of(api_name, f"result{{}} from f in step {k}", y)
        step_results.append(step_result.reordered_like(step_results[0]) if step_results else step_result)
    if reverse:
        step_results.reverse()
    columns = zip(*(step_result.leaves for step_result in step_results), strict=True)
    stacked = [stack([convert(x, result_dtype(*elements)) for x in elements]) for elements in columns]
    return carry, unflatten(step_results[0].tree, iter(stacked))


def _trace_scan(
    trace: Trace, api_name: str, f: Callable[[Any, Any], Any], init: Any, xs: TracedTree, length: int, reverse: bool
) -> tuple[Any, Any]:
    """Trace the scan as a loop of the program."""
    sequences = [trace.value(leaf) for leaf in xs.leaves]
    loop = TracedLoop(trace, api_name, "carry{} from f", "init{}", init)
    step_outputs: list[TracedTree] = []

    def step(carry: Any, elements: list[Tracer]) -> tuple[Any, TracedTree]:
        carry, y = _pair(api_name, f(carry, unflatten(xs.tree, iter(elements))))
        return carry, TracedTree.of(api_name, "result{} from f", y)

    def finish(next_carry: list[Tracer], y: TracedTree) -> Sequence[Any]:
        step_outputs.append(y)
        return [*next_carry, *y.leaves]

    body = loop.body([AbstractValue(untraced(s.shape[1:]), s.dtype) for s in sequences], step, finish)
    arguments = [x.value for x in (*loop.initial_arrays, *sequences)]
    results = trace.insert(dl.ScanOp.of(arguments, body, len(loop.avals), length, reverse))
    last, stacked_results = results[: len(loop.avals)], results[len(loop.avals) :]
    return loop.result(last), unflatten(step_outputs[-1].tree, iter(stacked_results))
