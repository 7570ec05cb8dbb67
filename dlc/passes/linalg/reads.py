"""How the values of a kernel are read: ops that only move elements cost nothing, their readers' maps absorb them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from dlc import dims
from dlc.dims import Size, UndecidableError
from dlc.ir import AffineDimExpr, AffineExpr, AffineMap, Attribute, SSAValue, TensorType


@dataclass(frozen=True)
class Read:
    """A `dl` value as `source[map(index)]`; a scalar source is the value of every element."""

    source: SSAValue
    map: AffineMap

    @staticmethod
    def of(source: SSAValue) -> Read:
        """A tensor read in place."""
        return Read(source, AffineMap.identity(len(cast("TensorType[Attribute]", source.type).get_shape())))

    @property
    def is_scalar(self) -> bool:
        return not isinstance(self.source.type, TensorType)

    @property
    def is_tensor(self) -> bool:
        """Whether the value is its source as it stands."""
        return not self.is_scalar and self.map == AffineMap.identity(len(self.map.results))

    def through(self, map_: AffineMap) -> Read:
        """The value whose element at `index` is this value's at `map_(index)`."""
        return Read(self.source, AffineMap(map_.num_dims, 0, ()) if self.is_scalar else self.map.compose(map_))


def alone(maps: Iterable[AffineMap]) -> set[int]:
    """The iterators that are a result of a map by themselves: operands with these maps tell their extents."""
    return {e.position for m in maps for e in m.results if isinstance(e, AffineDimExpr)}


def reshape_groups(source: Sequence[Size], to: Sequence[Size]) -> list[tuple[range, range]]:
    """The finest pairs of adjacent axes of two shapes that hold the same elements in row-major order.

    No side of a pair is empty, unless a shape is.
    """
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(source) and j < len(to):
        first, second = i, j
        i, j = i + 1, j + 1
        a, b = source[first], to[second]
        while a != b:
            if _is_less(a, b):
                a, i = a * source[i], i + 1
            else:
                b, j = b * to[j], j + 1
        groups.append((range(first, i), range(second, j)))
    if groups:
        # Axes of size 1 that are left belong to the last pair.
        before, after = groups.pop()
        groups.append((range(before.start, len(source)), range(after.start, len(to))))
    return groups


def _is_less(a: Size, b: Size) -> bool:
    """Whether a product of sizes must grow to be another: symbolic ones have all its factors and more."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if dims.quotient(b, a) is not None:
        return True
    if dims.quotient(a, b) is not None:
        return False
    raise UndecidableError(f"which elements of a reshaped tensor belong together: {a} against {b}")


def reshape_map(source: Sequence[Size], to: Sequence[Size], *, units_only: bool) -> AffineMap | None:
    """Index in the shape `to` → index in the shape `source` of the same elements; None where that takes a division.

    With `units_only`, None as well where an axis is split: where more than axes of size 1 come or go.
    """
    places: list[AffineExpr] = [AffineExpr.constant(0)] * len(source)
    for before, after in reshape_groups(source, to):
        axes = [a for a in before if source[a] != 1]
        parts = [a for a in after if to[a] != 1]
        if len(axes) > 1 or (units_only and len(parts) > 1):
            return None
        for axis in axes:
            for part in parts:
                step = dims.product(to[part + 1 : after.stop])
                if not isinstance(step, int):
                    return None
                places[axis] = places[axis] + AffineExpr.dimension(part) * step
    return AffineMap(len(to), 0, tuple(places))
