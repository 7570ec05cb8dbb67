"""A function as a program: traced on stand-ins for its arguments, its results returned from `@main`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dlc.arrays import ShapeDtype, given_array
from dlc.dialects.dl.base import Array, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.programs.ranges import state_ranges
from dlc.dims import Dim, Range, Size, UndecidableError, bind_sizes
from dlc.errors import DlcError, DTypeError
from dlc.frontend.answers import Answers, Condition
from dlc.frontend.entry import entry_function
from dlc.frontend.pytree import Tree, flatten, is_array_like, unflatten
from dlc.frontend.trace import Trace, Tracer, is_number, tracing
from dlc.ir import ModuleOp
from dlc.misuse import require_bound
from dlc.user_lines import place_of_line
from dlc.weights import WeightStore

# A size that a call has, and the range that it was said to have.
OpenSize: TypeAlias = "tuple[Size, Range | None]"


@dataclass(frozen=True)
class Traced:
    """What a function computes: `@main` over the leaves of its arguments, and the shape of its result and its leaves.

    It is what the function computes for open sizes that meet the `conditions`.
    """

    module: ModuleOp
    weights: WeightStore
    results: Tree
    returned: Sequence[Tracer]
    taken_by_numbers: Mapping[int, set[np.dtype[Any]]]
    conditions: tuple[Condition, ...] = ()


def trace(
    function: Callable[..., Any],
    leaves: Sequence[Array],
    tree: Tree,
    names: Sequence[str],
    static: Mapping[str, Any],
    open_sizes: Sequence[Mapping[int, OpenSize]] = (),
    result_names: Sequence[str] | None = None,
    into: Trace | None = None,
    by_call: bool = False,
) -> Traced:
    """Traces `function` called with the (args, kwargs) tree of these leaves, and static keyword arguments.

    Only the leaves' shapes and dtypes matter; of a shape not even the axes for which a leaf has an entry in `open_sizes`, but
    where `by_call`: what the function asks of these sizes goes by those that the leaves have, on `conditions` then.
    Results are called by their places in what the function returns if they have no names. `into` is a trace of another kind,
    which has the arguments already.
    Raises what the function raises; errors of shape and dtype name the line.
    """
    current = into or Trace()
    arguments: list[Any] = []
    for k, (leaf, name) in enumerate(zip(leaves, names, strict=True)):
        array = leaf if isinstance(leaf, ShapeDtype) else given_array(leaf)
        open_: Mapping[int, OpenSize] = open_sizes[k] if open_sizes else {}
        shape = tuple(open_[axis][0] if axis in open_ else size for axis, size in enumerate(array.shape))
        try:
            element = element_type(array.dtype)
        except DTypeError as error:
            problem = f"Python integer {leaf} out of bounds for 64 bits" if is_number(leaf) else error
            raise DTypeError(f"argument {name}: {problem}") from None
        argument = current.block.insert_arg(tensor_type(shape, element), len(current.block.args))
        arguments.append(Tracer(current, argument, weak=is_number(leaf)))
        argument.name_hint = identifier(name)
    args, kwargs = unflatten(tree, iter(arguments))
    stated = {str(size): range_ for axes in open_sizes for size, range_ in axes.values() if range_ is not None}
    sizes: dict[str, int] = {}
    for leaf, axes in zip(leaves, open_sizes, strict=False) if by_call else ():
        bind_sizes([size for size, _ in axes.values()], [leaf.shape[axis] for axis in axes], sizes)
    answers = Answers(stated, sizes if by_call else None)
    with tracing(current, answers):
        try:
            results, result_tree = flatten(function(*args, **kwargs, **static))
        except DlcError as error:
            place = place_of_line(error) if isinstance(error, UndecidableError) else ""
            said = str(error) if str(error).startswith(place) else f"{place}: {error}"
            error.args = (current.counts.explained(said), *error.args[1:])
            raise
        except TypeError:
            require_bound(function, tuple(args), {**kwargs, **static})
            raise
        except ValueError as error:
            # NumPy hides what a Tracer says to `array[i] = x` behind an error of its own.
            if isinstance(error.__cause__, DlcError):
                raise error.__cause__ from None
            if current.snapshots.any_frozen and "read-only" in str(error):
                problem = "a large array that the function has read is changed in place while it is traced"
                raise DlcError(f"{place_of_line(error)}: {problem}; change a copy of it") from error
            raise
        returned = [_result(current, r) for r in results]
    values = [r.value for r in returned]
    main = entry_function(current.block, names, values, result_tree.paths("result") if result_names is None else result_names)
    state_ranges(main, stated)
    return Traced(ModuleOp([main]), current.weights, result_tree, returned, current.taken_by_numbers, answers.conditions)


def identifier(name: str) -> str | None:
    """A leaf's path as an SSA name."""
    text = "".join(c if c.isalnum() else "_" for c in name).strip("_")
    return text if text and not text[0].isdigit() else None


def _result(current: Trace, value: object) -> Tracer:
    if not is_array_like(value) and not isinstance(value, Dim):
        got = type(value).__name__
        raise DTypeError(f"the traced function returned a {got}; expected arrays, numbers and containers of them")
    return current.value(value)
