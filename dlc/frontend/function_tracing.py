"""Trace a function into a program: run it on tracers for its arguments, and return its results from `@main`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.argument_validation.validate import require_call_signature
from dlc.arrays import ShapeDtype, to_numpy
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.programs.size_ranges import set_guards, set_size_ranges
from dlc.dialects.location_text import location_prefix
from dlc.errors import DlcError, DTypeError, OutOfRangeError
from dlc.frontend.entry import entry_function
from dlc.frontend.pytree import Tree, flatten, is_array_like, unflatten
from dlc.frontend.size_guards import SizeGuards
from dlc.frontend.trace import Trace, Tracer, is_python_scalar, tracing, user_location
from dlc.ir import ModuleOp
from dlc.shapes.dims import Size, UndecidableError
from dlc.shapes.ranges import SizeRange
from dlc.shapes.traced_dims import TracedDim
from dlc.source_locations import format_error_line
from dlc.weights import WeightStore

# Minimum elements of an array of equal elements that is returned as a broadcast literal.
_MIN_FILLED_ELEMENTS = 1 << 12

# A symbolic size, and its declared range.
SymbolicSize: TypeAlias = "tuple[Size, SizeRange | None]"


@dataclass(frozen=True)
class TracedFunction:
    """The program of a function: `@main` over the leaves of its arguments, and the structure and leaves of its result."""

    module: ModuleOp
    weights: WeightStore
    results: Tree
    returned: Sequence[Tracer]
    weak_argument_dtypes: Mapping[int, set[np.dtype[Any]]]


def trace(
    function: Callable[..., Any],
    leaves: Sequence[Array],
    tree: Tree,
    names: Sequence[str],
    static: Mapping[str, Any],
    symbolic_sizes: Sequence[Mapping[int, SymbolicSize]] = (),
    result_names: Sequence[str] | None = None,
    into: Trace | None = None,
    sizes: Mapping[str, int] | None = None,
) -> TracedFunction:
    """Trace `function`, called with the (args, kwargs) pytree of these leaves and with static keyword arguments.

    Only the shapes and dtypes of the leaves matter. Axes with an entry in `symbolic_sizes` are symbolic; comparisons of these
    sizes are decided by the `sizes` of a call, if given, and become guards of the program.
    Results without `result_names` are named by their paths. `into` is the trace to record in, by default a new one.
    Raises what the function raises; ShapeError and DTypeError name the line.
    """
    declared_ranges = {str(size): range_ for axes in symbolic_sizes for size, range_ in axes.values() if range_ is not None}
    guards = SizeGuards(declared_ranges, sizes, lambda: f"{location_prefix(user_location())}a comparison")
    current = into or Trace(str(getattr(function, "__name__", "a function")), guards)
    arguments: list[Any] = []
    for k, (leaf, name) in enumerate(zip(leaves, names, strict=True)):
        array = leaf if isinstance(leaf, ShapeDtype) else to_numpy(leaf)
        symbolic_axes: Mapping[int, SymbolicSize] = symbolic_sizes[k] if symbolic_sizes else {}
        shape = tuple(symbolic_axes[axis][0] if axis in symbolic_axes else size for axis, size in enumerate(array.shape))
        try:
            element = element_type(array.dtype)
        except DTypeError as error:
            if is_python_scalar(leaf):
                raise OutOfRangeError(f"argument {name}: Python integer {leaf} out of bounds for 64 bits") from None
            raise DTypeError(f"argument {name}: {error}") from None
        argument = current.block.insert_arg(tensor_type(shape, element), len(current.block.args))
        arguments.append(Tracer(current, argument, weak=is_python_scalar(leaf)))
        argument.name_hint = ssa_name(name)
    args, kwargs = unflatten(tree, iter(arguments))
    with tracing(current):
        try:
            results, result_tree = flatten(function(*args, **kwargs, **static))
        except DlcError as error:
            line = format_error_line(error) if isinstance(error, UndecidableError) else ""
            message = str(error) if str(error).startswith(line) else f"{line}: {error}"
            error.args = (current.data_dependent_sizes.explain(message), *error.args[1:])
            raise
        except TypeError:
            require_call_signature(function, tuple(args), {**kwargs, **static})
            raise
        except ValueError as error:
            # NumPy wraps the error that a Tracer raises for `array[i] = x`.
            if isinstance(error.__cause__, DlcError):
                raise error.__cause__ from None
            if current.snapshots.has_frozen_arrays and "read-only" in str(error):
                problem = "a large array that the function captured is modified in place during tracing"
                raise DlcError(f"{format_error_line(error)}: {problem}; modify a copy of it") from error
            raise
        returned = [_result(current, r) for r in results]
    values = [r.value for r in returned]
    main = entry_function(current.block, names, values, result_tree.paths("result") if result_names is None else result_names)
    set_size_ranges(main, declared_ranges)
    set_guards(main, (*guards.guards, *current.guards))
    return TracedFunction(ModuleOp([main]), current.weights, result_tree, returned, current.weak_argument_dtypes)


def ssa_name(name: str) -> str | None:
    """Return the path of a leaf as an SSA name."""
    text = "".join(c if c.isalnum() else "_" for c in name).strip("_")
    return text if text and not text[0].isdigit() else None


def _is_uniform(array: Array) -> bool:
    """Return whether all elements have equal bits."""
    element, start = array[(0,) * array.ndim].tobytes(), array.reshape(-1)[:8].tobytes()
    return start == element * 8 and array.tobytes() == element * array.size


def _result(current: Trace, value: object) -> Tracer:
    if not is_array_like(value) and not isinstance(value, TracedDim):
        got = type(value).__name__
        raise DTypeError(f"the traced function returned a {got}; expected arrays, numbers and containers of them")
    # A kernel fills such a result, which would be copied from a weight.
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        if array.size >= _MIN_FILLED_ELEMENTS and _is_uniform(array):
            return current.apply(dl.BroadcastToOp, current.literal(array[(*(0,) * array.ndim, ...)]), shape=array.shape)
    return current.value(cast(object, value))
