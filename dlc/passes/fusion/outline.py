"""Outline a fusion group as a kernel."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import cast

from dlc.dialects.dl.base import DlOp, attribute
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.interfaces import Contraction, DataMovement, LibraryKernel
from dlc.dialects.dl.programs.program import REPRESENTATIVE, KernelOp, YieldOp, empty_kernel
from dlc.ir import ArrayAttr, Attribute, FusedLoc, LocationAttr, NameLoc, NoneAttr, SSAValue, StringAttr, UnknownLoc
from dlc.passes.dl.rewriting import splat
from dlc.passes.fusion.candidates import Candidates
from dlc.passes.fusion.kernel_sizes import KernelSizes, require_size_independent_types
from dlc.shapes.ranges import SizeRange


class Outline:
    """The ops of a new kernel: those of a fusion group, and copies of the data-movement ops and constants fused into them.

    Attributes:
        inputs: The operands of the dispatch.
        sizes: The symbolic dimensions that the dispatch passes, in the order of the kernel-local symbols.
        location: The locations of all ops, fused in order.
    """

    def __init__(self, members: Sequence[DlOp], candidates: Candidates, ranges: Mapping[str, SizeRange]) -> None:
        self.inputs: list[SSAValue] = []
        self._members = set(members)
        self._candidates = candidates
        self._ranges = ranges
        # The kernel's ops in topological order, with their source locations.
        self._ops: dict[DlOp, list[LocationAttr]] = {}
        for op in members:
            self._add_op(op, location_components(op.location))
        self._location_indices: dict[LocationAttr, int] = {}
        for op_locations in self._ops.values():
            for location in op_locations:
                self._location_indices.setdefault(location, len(self._location_indices))
        self._sizes = KernelSizes([v.type for v in self.inputs], self._ops)
        self.sizes = self._sizes.outer_sizes

    def _add_op(self, op: DlOp, op_locations: list[LocationAttr]) -> None:
        if op in self._ops:
            return
        for index, value in enumerate(op.operands):
            source = value.owner
            if source in self._members:
                continue
            is_constant = isinstance(source, ConstantOp) and splat(value) is not None and not isinstance(op, LibraryKernel)
            if isinstance(source, DlOp) and (is_constant or self._candidates.fuses_operand(op, index)):
                # Shared constants and compiler-inserted slices have no location of their own: use that of their user.
                self._add_op(source, op_locations if is_constant else location_components(source.location) or op_locations)
            elif value not in self.inputs:
                self.inputs.append(value)
        self._ops[op] = op_locations

    def deduplication_key(self, results: Sequence[SSAValue]) -> Hashable | None:
        """Return a key that is equal for groups whose kernels are equal; None for kernels that must stay separate.

        These must stay separate:
        - kernels of two contractions (attention): later passes specialize them for their masks and operands;
        - kernels of data movement only: later passes may remove them;
        - kernels with symbolic dimensions: their types contain symbols of the program.
        """
        contractions = sum(isinstance(op, Contraction) for op in self._ops)
        if self.sizes or contractions > 1 or all(isinstance(op, DataMovement) for op in self._ops):
            return None
        value_numbers = {value: k for k, value in enumerate(self.inputs)}
        ops: list[Hashable] = []
        for op, op_locations in self._ops.items():
            operand_numbers = tuple([value_numbers[v] for v in op.operands])
            result_types = tuple([r.type for r in op.results])
            ops.append(
                (
                    type(op),
                    operand_numbers,
                    tuple(op.properties.items()),
                    result_types,
                    self._location_indices[op_locations[0]] if op_locations else None,
                )
            )
            for result in op.results:
                value_numbers[result] = len(value_numbers)
        input_kinds = tuple([(v.type, v in self._candidates.constant) for v in self.inputs])
        return input_kinds, tuple(ops), tuple([value_numbers[r] for r in results])

    @property
    def location(self) -> LocationAttr:
        return FusedLoc(ArrayAttr(list(self._location_indices)), NoneAttr()) if self._location_indices else UnknownLoc()

    def kernel(self, name: str, results: Sequence[SSAValue]) -> KernelOp:
        """Build the kernel. The location of each op is its index `#k` in the kernel's fused location."""
        kernel_type = self._sizes.kernel_type
        kernel = empty_kernel(name, [kernel_type(v.type) for v in self.inputs], [kernel_type(r.type) for r in results])
        if self.sizes:
            kernel.attributes[REPRESENTATIVE] = attribute(self._sizes.representative(self._ranges))
        mapping: dict[SSAValue, SSAValue] = dict(zip(self.inputs, kernel.body.block.args, strict=True))
        for outer, inner in mapping.items():
            inner.name_hint = outer.name_hint or ("w" if outer in self._candidates.constant else "x")
        for op, op_locations in self._ops.items():
            copy = type(op).create(
                operands=[mapping[v] for v in op.operands],
                result_types=[kernel_type(r.type) for r in op.results],
                properties={name: self._sizes.property(value) for name, value in op.properties.items()},
            )
            require_size_independent_types(copy, op, self._sizes)
            copy.location = indexed_location(self._location_indices[op_locations[0]]) if op_locations else UnknownLoc()
            kernel.body.block.add_op(copy)
            for old, new in zip(op.results, copy.results, strict=True):
                mapping[old] = new
                new.name_hint = old.name_hint or op.name.partition(".")[2]
        kernel.body.block.add_op(YieldOp([mapping[r] for r in results]))
        return kernel


@lru_cache(maxsize=256)
def indexed_location(index: int) -> LocationAttr:
    """Return the location that refers to a component of the kernel's fused location."""
    return NameLoc(StringAttr(f"#{index}"), NoneAttr())


def location_components(location: Attribute) -> list[LocationAttr]:
    """Return the components of a fused location; empty for an unknown one."""
    match location:
        case FusedLoc(locations=components):
            return list(cast("ArrayAttr[LocationAttr]", components))
        case UnknownLoc():
            return []
        case _:
            return [cast(LocationAttr, location)]
