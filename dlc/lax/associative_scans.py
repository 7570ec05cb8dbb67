"""Parallel prefix scans by an associative function, in a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc.errors import DlcError, ShapeError
from dlc.frontend.pytree import flatten, unflatten
from dlc.lax.scans import scan
from dlc.numpy.apply import convert, normalize_axis, operand, refuse
from dlc.numpy.functions.joining import concat, stack
from dlc.numpy.functions.shape_manipulation import flip, moveaxis
from dlc.shapes.dims import is_static
from dlc.shapes.traced_dims import untraced
from dlc.traced_functions.bodies import require_functions
from dlc.traced_functions.type_agreement import TracedTree

__all__ = ["associative_scan"]


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Return the inclusive prefix scan of an associative function along `axis`: result i combines the elements 0 to i.

    `fn(a, b)` combines two pytrees like `elems` of which each entry along `axis` is one element, and returns another; it is
    applied to many pairs at once. `reverse` combines the elements from the last to the first, as `fn(later, earlier)`. An axis
    of n elements takes 2 log₂ n steps with about 2n combinations in total; one of a symbolic size is combined element by
    element.

    Raises ShapeError for arrays of different sizes along `axis` or no arrays, and DlcError, naming every leaf, for a result of
    `fn` with another structure, shape or dtype.

    Algorithm: odd-even reduction (Blelloch, Prefix sums and their applications, 1990).
    """
    api_name = "dlc.lax.associative_scan"
    require_functions(api_name, fn=fn)
    tree = TracedTree.of(api_name, "elems{}", elems)
    arrays = [operand(leaf) for leaf in tree.leaves]
    if not arrays:
        refuse(ShapeError(f"{api_name}: no arrays in elems; expected at least one"))
    axes = [normalize_axis(api_name, array, axis) for array in arrays]
    sizes = {path: untraced(array.shape)[a] for path, array, a in zip(tree.paths, arrays, axes, strict=True)}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{path}: {size}" for path, size in sizes.items())
        refuse(ShapeError(f"{api_name}: different sizes of axis {axis} ({listed}); expected one size for all arrays"))

    def combine(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
        """Combine elements along axis 0 of arrays."""
        pairs = [[moveaxis(x, 0, a) for x, a in zip(leaves, axes, strict=True)] for leaves in (first, second)]
        result, result_tree = flatten(fn(*(unflatten(tree.tree, iter(leaves)) for leaves in pairs)))
        if difference := tree.tree.first_difference(result_tree):
            path, expected, got = difference
            refuse(DlcError(f"{api_name}: the result of fn{path} is {got}; expected {expected}, as in elems"))
        ordered = [operand(x) for x in tree.tree.reordered_leaves(result_tree, result)]
        for path, x, like in zip(tree.tree.paths("the result of fn"), ordered, pairs[0], strict=True):
            if (x.shape, x.dtype) != (like.shape, like.dtype):
                expected = f"{like.dtype}{list(like.shape)}"
                refuse(DlcError(f"{api_name}: {path} is {x.dtype}{list(x.shape)}; expected {expected}, as its argument"))
        return [moveaxis(x, a, 0) for x, a in zip(ordered, axes, strict=True)]

    elements = [moveaxis(array, a, 0) for array, a in zip(arrays, axes, strict=True)]
    if reverse:
        elements = [flip(x, 0) for x in elements]
    results = _combine_prefixes(combine, elements) if is_static(list(sizes.values())) else _combine_in_order(combine, elements)
    if reverse:
        results = [flip(x, 0) for x in results]
    return unflatten(tree.tree, iter([moveaxis(x, 0, a) for x, a in zip(results, axes, strict=True)]))


Combine = Callable[[Sequence[Any], Sequence[Any]], "list[Any]"]


def _combine_prefixes(combine: Combine, elements: Sequence[Any]) -> list[Any]:
    """Combine pairs of neighbors, the prefixes of these pairs, and from them the prefixes that end between the pairs."""
    size = elements[0].shape[0]
    if size < 2:
        return list(elements)
    odd = _combine_prefixes(combine, combine([x[: size - 1 : 2] for x in elements], [x[1::2] for x in elements]))
    first = [x[:1] for x in elements]
    if size == 2:
        return [concat([x, y]) for x, y in zip(first, odd, strict=True)]
    count = (size - 1) // 2
    even = combine([x[:count] for x in odd], [x[2::2] for x in elements])
    return [_interleave(concat([x, y]), z) for x, y, z in zip(first, even, odd, strict=True)]


def _interleave(even: Any, odd: Any) -> Any:
    """Return even[0], odd[0], even[1], …; `even` may have one more entry."""
    count = odd.shape[0]
    pairs = stack([even[:count], odd], 1).reshape((2 * count, *odd.shape[1:]))
    return pairs if even.shape[0] == count else concat([pairs, even[count:]])


def _combine_in_order(combine: Combine, elements: Sequence[Any]) -> list[Any]:
    """Combine elements one after the other."""

    def step(prefix: list[Any], element: list[Any]) -> tuple[list[Any], list[Any]]:
        combined = [x[0] for x in combine([x[None] for x in prefix], [x[None] for x in element])]
        return combined, combined

    first = [x[:1] for x in elements]
    _, rest = scan(step, [x[0] for x in first], [x[1:] for x in elements])
    return [concat([x, convert(y, x.dtype)]) for x, y in zip(first, rest, strict=True)]
