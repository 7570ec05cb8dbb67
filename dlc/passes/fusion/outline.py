"""Outline a group of ops as a kernel."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import cast

from dlc.dialects.dl.base import DlOp, attribute
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.interfaces import Contraction, LibraryKernel, Movement
from dlc.dialects.dl.programs.program import REPRESENTATIVE, KernelOp, YieldOp, empty_kernel
from dlc.dims import SizeRange
from dlc.ir import ArrayAttr, Attribute, FusedLoc, LocationAttr, NameLoc, NoneAttr, SSAValue, StringAttr, UnknownLoc
from dlc.passes.dl.rewriting import splat
from dlc.passes.fusion.candidates import Candidates
from dlc.passes.fusion.kernel_sizes import KernelSizes, require_size_independent_types


class Outline:
    """The contents of a kernel: a group's ops, with copies of the movements and constants that they read.

    `inputs` are the program's values for the arguments, `sizes` the program's sizes for the kernel-local size names.
    `ranges` are the ranges of the program's sizes. `location` lists the origins of all ops, in order.
    """

    def __init__(self, members: Sequence[DlOp], candidates: Candidates, ranges: Mapping[str, SizeRange]) -> None:
        self.inputs: list[SSAValue] = []
        self._members = set(members)
        self._candidates = candidates
        self._ranges = ranges
        # The kernel's ops with their origins; producers precede their users.
        self._ops: dict[DlOp, list[LocationAttr]] = {}
        for op in members:
            self._add_op(op, origins(op.location))
        self._origins: dict[LocationAttr, int] = {}
        for op_origins in self._ops.values():
            for origin in op_origins:
                self._origins.setdefault(origin, len(self._origins))
        self._sizes = KernelSizes([v.type for v in self.inputs], self._ops)
        self.sizes = self._sizes.outer_sizes

    def _add_op(self, op: DlOp, op_origins: list[LocationAttr]) -> None:
        if op in self._ops:
            return
        for index, value in enumerate(op.operands):
            source = value.owner
            if source in self._members:
                continue
            is_constant = isinstance(source, ConstantOp) and splat(value) is not None and not isinstance(op, LibraryKernel)
            if isinstance(source, DlOp) and (is_constant or self._candidates.fuses_operand(op, index)):
                # Shared constants and inserted slices have no origin of their own: use that of their reader.
                self._add_op(source, op_origins if is_constant else origins(source.location) or op_origins)
            elif value not in self.inputs:
                self.inputs.append(value)
        self._ops[op] = op_origins

    def sharing_key(self, results: Sequence[SSAValue]) -> Hashable | None:
        """Return a key that groups with equal kernels share; None for kernels that must not be shared.

        Later passes specialize kernels of two contractions for their masks and argument producers, and may remove kernels of
        movements. Kernels with symbolic sizes are not compared, since these have the program's names.
        """
        contractions = sum(isinstance(op, Contraction) for op in self._ops)
        if self.sizes or contractions > 1 or all(isinstance(op, Movement) for op in self._ops):
            return None
        value_numbers = {value: k for k, value in enumerate(self.inputs)}
        ops: list[Hashable] = []
        for op, op_origins in self._ops.items():
            operand_numbers = tuple([value_numbers[v] for v in op.operands])
            result_types = tuple([r.type for r in op.results])
            ops.append(
                (
                    type(op),
                    operand_numbers,
                    tuple(op.properties.items()),
                    result_types,
                    self._origins[op_origins[0]] if op_origins else None,
                )
            )
            for result in op.results:
                value_numbers[result] = len(value_numbers)
        input_kinds = tuple([(v.type, v in self._candidates.constant) for v in self.inputs])
        return input_kinds, tuple(ops), tuple([value_numbers[r] for r in results])

    @property
    def location(self) -> LocationAttr:
        return FusedLoc(ArrayAttr(list(self._origins)), NoneAttr()) if self._origins else UnknownLoc()

    def kernel(self, name: str, results: Sequence[SSAValue]) -> KernelOp:
        """Build the kernel; the location of each op is an index into the list of origins."""
        kernel_type = self._sizes.kernel_type
        kernel = empty_kernel(name, [kernel_type(v.type) for v in self.inputs], [kernel_type(r.type) for r in results])
        if self.sizes:
            kernel.attributes[REPRESENTATIVE] = attribute(self._sizes.representative(self._ranges))
        values: dict[SSAValue, SSAValue] = dict(zip(self.inputs, kernel.body.block.args, strict=True))
        for outer, inner in values.items():
            inner.name_hint = outer.name_hint or ("w" if outer in self._candidates.constant else "x")
        for op, op_origins in self._ops.items():
            copy = type(op).create(
                operands=[values[v] for v in op.operands],
                result_types=[kernel_type(r.type) for r in op.results],
                properties={name: self._sizes.property(value) for name, value in op.properties.items()},
            )
            require_size_independent_types(copy, op, self._sizes)
            copy.location = _origin_index(self._origins[op_origins[0]]) if op_origins else UnknownLoc()
            kernel.body.block.add_op(copy)
            for old, new in zip(op.results, copy.results, strict=True):
                values[old] = new
                new.name_hint = old.name_hint or op.name.partition(".")[2]
        kernel.body.block.add_op(YieldOp([values[r] for r in results]))
        return kernel


@lru_cache(maxsize=256)
def _origin_index(index: int) -> LocationAttr:
    """Return the location for an index in a kernel's list of origins."""
    return NameLoc(StringAttr(f"#{index}"), NoneAttr())


def origins(location: Attribute) -> list[LocationAttr]:
    """Return the components of a fused location; empty for an unknown one."""
    match location:
        case FusedLoc(locations=components):
            return list(cast("ArrayAttr[LocationAttr]", components))
        case UnknownLoc():
            return []
        case _:
            return [cast(LocationAttr, location)]
