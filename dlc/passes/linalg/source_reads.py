"""Reads of kernel values through data-movement ops. They cost nothing: the indexing maps of the users absorb them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from dlc.ir import AffineDimExpr, AffineExpr, AffineMap, Attribute, SSAValue, TensorType
from dlc.shapes import dims
from dlc.shapes.dims import Size
from dlc.shapes.reshapes import paired_reshape_groups


@dataclass(frozen=True)
class SourceRead:
    """A `dl` value as `source[map(index)]`. If `source` is a scalar, every element has its value."""

    source: SSAValue
    map: AffineMap

    @staticmethod
    def of(source: SSAValue) -> SourceRead:
        """Read a tensor in place."""
        return SourceRead(source, AffineMap.identity(len(cast("TensorType[Attribute]", source.type).get_shape())))

    @property
    def is_scalar(self) -> bool:
        return not isinstance(self.source.type, TensorType)

    @property
    def is_tensor(self) -> bool:
        """True if the value is its source, with an identity map."""
        return not self.is_scalar and self.map == AffineMap.identity(len(self.map.results))

    def through(self, map_: AffineMap) -> SourceRead:
        """Return the value whose element at `index` is this value's at `map_(index)`."""
        return SourceRead(self.source, AffineMap(map_.num_dims, 0, ()) if self.is_scalar else self.map.compose(map_))


def standalone_dims(maps: Iterable[AffineMap]) -> set[int]:
    """Return the iterators that are a map result by themselves. The extents of operands with these maps determine theirs."""
    return {e.position for m in maps for e in m.results if isinstance(e, AffineDimExpr)}


def reshape_map(source: Sequence[Size], to: Sequence[Size], *, units_only: bool) -> AffineMap | None:
    """Map an index in shape `to` to the index of the same element in shape `source`; None if that takes a division.

    With `units_only`, also None where an axis is split: only unit axes may be added or removed.
    """
    expressions: list[AffineExpr] = [AffineExpr.constant(0)] * len(source)
    for source_axes, result_axes in paired_reshape_groups(source, to):
        axes = [a for a in source_axes if source[a] != 1]
        target_axes = [a for a in result_axes if to[a] != 1]
        if len(axes) > 1 or (units_only and len(target_axes) > 1):
            return None
        for axis in axes:
            for target_axis in target_axes:
                step = dims.product(to[target_axis + 1 : result_axes.stop])
                if not isinstance(step, int):
                    return None
                expressions[axis] = expressions[axis] + AffineExpr.dimension(target_axis) * step
    return AffineMap(len(to), 0, tuple(expressions))
