"""Collectives between the ranks that run the function of a `dlc.shard_map`, with JAX's names and arguments.

`axis_name` is the name of a mesh axis, or a tuple of names with the outermost first. Arrays are pytrees where JAX's are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.dialects import dl
from dlc.distributed.local_mesh import group_of
from dlc.errors import ShapeError
from dlc.frontend.pytree import flatten, unflatten
from dlc.frontend.trace import Tracer, is_python_scalar
from dlc.numpy.apply import apply, convert, operand, promote_to_float, refuse
from dlc.numpy.functions.elementwise import divide
from dlc.numpy.functions.shape_manipulation import expand_dims, moveaxis, squeeze
from dlc.traced_functions.leaf_functions import require_trace

__all__ = [
    "all_gather", "all_to_all", "axis_index", "axis_size", "pmax", "pmean", "pmin", "ppermute", "psum", "psum_scatter", "pvary",
]  # fmt: skip

AxisName = str | tuple[str, ...]


def psum(x: Any, axis_name: AxisName, /) -> Any:
    """Return the sum of `x` over the ranks along mesh axes, int64 for bools; a Python number is multiplied by their number."""
    _, size = group_of("dlc.lax.psum", axis_name)
    return _mapped(lambda leaf: leaf * size if is_python_scalar(leaf) else _reduced("psum", leaf, axis_name, "sum"), x)


def pmean(x: Any, axis_name: AxisName, /) -> Any:
    """Return the mean of `x` over the ranks along mesh axes; integers are promoted to float64 before they are added."""
    _, size = group_of("dlc.lax.pmean", axis_name)

    def mean(leaf: Any) -> Any:
        (array,) = promote_to_float(leaf)
        return divide(_reduced("pmean", array, axis_name, "sum"), size)

    return _mapped(mean, x)


def pmax(x: Any, axis_name: AxisName, /) -> Any:
    """Return the maximum of `x` over the ranks along mesh axes."""
    return _mapped(lambda leaf: _reduced("pmax", leaf, axis_name, "max"), x)


def pmin(x: Any, axis_name: AxisName, /) -> Any:
    """Return the minimum of `x` over the ranks along mesh axes."""
    return _mapped(lambda leaf: _reduced("pmin", leaf, axis_name, "min"), x)


def all_gather(x: Any, axis_name: AxisName, /, *, axis: int = 0, tiled: bool = False) -> Any:
    """Return the arrays of all ranks along mesh axes, stacked along a new axis; `tiled` concatenates them along `axis`."""
    group = _group("all_gather", axis_name)

    def gather(leaf: Any) -> Any:
        array = _array(leaf)
        position = _axis("all_gather", "axis", axis, array.ndim + (not tiled))
        return apply(dl.AllGatherOp, array if tiled else expand_dims(array, position), **group, axis=position)

    return _mapped(gather, x)


def psum_scatter(x: Any, axis_name: AxisName, /, *, scatter_dimension: int = 0, tiled: bool = False) -> Any:
    """Return this rank's part of the sum over the ranks along mesh axes.

    The axis `scatter_dimension` has the size of the group and is removed; `tiled` splits an axis of a multiple of that size.
    Raises ShapeError for another size.
    """
    axes, size = group_of("dlc.lax.psum_scatter", axis_name)

    def scatter(leaf: Any) -> Any:
        array = _array(leaf)
        axis = _axis("psum_scatter", "scatter_dimension", scatter_dimension, array.ndim)
        if not tiled:
            _require_size("psum_scatter", "scatter_dimension", array, axis, size)
        part = apply(dl.ReduceScatterOp, array, axes=" ".join(axes), group_size=size, axis=axis, combine="sum")
        return part if tiled else squeeze(part, axis)

    return _mapped(scatter, x)


def all_to_all(x: Any, axis_name: AxisName, /, split_axis: int, concat_axis: int, *, tiled: bool = False) -> Any:
    """Split `x` along `split_axis`, send a part to each rank along mesh axes, and combine the received parts.

    `split_axis` has the size of the group and is removed, and the parts are stacked along a new axis at `concat_axis`. `tiled`
    splits an axis of a multiple of that size, and concatenates the parts along the existing axis `concat_axis`. Raises
    ShapeError for another size.
    """
    axes, size = group_of("dlc.lax.all_to_all", axis_name)

    def exchange(leaf: Any) -> Any:
        array = _array(leaf)
        split, joined = (
            _axis("all_to_all", name, axis, array.ndim)
            for name, axis in (("split_axis", split_axis), ("concat_axis", concat_axis))
        )
        if not tiled:
            _require_size("all_to_all", "split_axis", array, split, size)
            array, split = moveaxis(array, split, joined), joined
        group: dict[str, Any] = {"axes": " ".join(axes), "group_size": size}
        return apply(dl.AllToAllOp, array, **group, split_axis=split, concat_axis=joined)

    return _mapped(exchange, x)


def ppermute(x: Any, axis_name: str, /, perm: Sequence[tuple[int, int]]) -> Any:
    """Send `x` along a mesh axis: for each (source, target) of `perm`, the target receives the array of the source.

    A rank that is not a target receives zeros. Raises ShapeError for rank indices that the axis does not have, or that repeat.
    """
    group = _group("ppermute", axis_name)
    pairs = tuple(int(position) for pair in perm for position in pair)
    return _mapped(lambda leaf: apply(dl.PermuteOp, _array(leaf), **group, pairs=pairs), x)


def pvary(x: Any, axis_name: AxisName, /) -> Any:
    """Return `x` as a value that may differ between ranks along mesh axes.

    Gradients with respect to it are those of this rank; gradients with respect to an equal value of all ranks are their sum.
    """
    group = _group("pvary", axis_name)
    return _mapped(lambda leaf: apply(dl.VaryOp, _array(leaf), **group), x)


def axis_index(axis_name: AxisName, /) -> Any:
    """Return the index of this rank along mesh axes, a weakly typed integer scalar."""
    group = _group("axis_index", axis_name)
    trace = require_trace()
    index = trace.apply(dl.AxisIndexOp, **group)
    # A weakly typed integer, so that it takes the dtype of the arrays that it is combined with.
    result = Tracer(trace, index.value, weak=True)
    trace.record_range(result, 0, int(group["group_size"]) - 1)
    return result


def axis_size(axis_name: AxisName, /) -> int:
    """Return the number of ranks along mesh axes."""
    return group_of("dlc.lax.axis_size", axis_name)[1]


def _group(function: str, axis_name: AxisName) -> dict[str, Any]:
    axes, size = group_of(f"dlc.lax.{function}", axis_name)
    return {"axes": " ".join(axes), "group_size": size}


def _reduced(function: str, leaf: Any, axis_name: AxisName, combine: str) -> Any:
    group, array = _group(function, axis_name), _array(leaf)
    # As in NumPy, the sum of bools is an integer.
    summed = convert(array, np.dtype(np.int64)) if combine == "sum" and array.dtype == np.bool_ else array
    return apply(dl.AllReduceOp, summed, **group, combine=combine)


def _array(leaf: Any) -> Tracer:
    """Return a leaf as a value of the trace: a constant is exchanged as well."""
    return require_trace().value(operand(leaf))


def _mapped(function: Callable[[Any], Any], x: Any) -> Any:
    leaves, tree = flatten(x)
    return unflatten(tree, iter([function(leaf) for leaf in leaves]))


def _axis(function: str, parameter: str, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        refuse(ShapeError(f"dlc.lax.{function}: {parameter} {axis} for an array of rank {rank}"))
    return axis % rank


def _require_size(function: str, parameter: str, array: Any, axis: int, size: int) -> None:
    if array.shape[axis] != size:
        problem = f"dlc.lax.{function}: {parameter} {axis} has size {array.shape[axis]}; expected {size}, or tiled=True"
        refuse(ShapeError(problem))
