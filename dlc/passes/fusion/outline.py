"""Writing a group of ops as a kernel."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import cast

from dlc.dialects.dl.base import DlOp, attribute
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.interfaces import Contraction, Movement, Procedure
from dlc.dialects.dl.programs.program import REPRESENTATIVE, KernelOp, YieldOp, empty_kernel
from dlc.dims import Range
from dlc.ir import ArrayAttr, Attribute, FusedLoc, LocationAttr, NameLoc, NoneAttr, SSAValue, StringAttr, UnknownLoc
from dlc.passes.dl.rewriting import splat
from dlc.passes.fusion.candidates import Candidates
from dlc.passes.fusion.kernel_sizes import KernelSizes, require_decided


class Outline:
    """The content of a kernel: a group's ops, with copies of the movements and known numbers that they read.

    `inputs` are the values that the kernel's arguments stand for, `location` lists the origins of its ops in order, `sizes`
    are what the kernel's own names for sizes stand for; `ranges` say what is known of the program's.
    """

    def __init__(self, members: Sequence[DlOp], candidates: Candidates, ranges: Mapping[str, Range]) -> None:
        self.inputs: list[SSAValue] = []
        self._members = set(members)
        self._candidates = candidates
        self._ranges = ranges
        # Ops in the kernel's order, each after those that it reads, with what they come from.
        self._ops: dict[DlOp, list[LocationAttr]] = {}
        for op in members:
            self._add(op, origins(op.location))
        self._origins: dict[LocationAttr, int] = {}
        for parts in self._ops.values():
            for part in parts:
                self._origins.setdefault(part, len(self._origins))
        self._sizes = KernelSizes([v.type for v in self.inputs], self._ops)
        self.sizes = self._sizes.meanings

    def _add(self, op: DlOp, parts: list[LocationAttr]) -> None:
        if op in self._ops:
            return
        for index, value in enumerate(op.operands):
            source = value.owner
            if source in self._members:
                continue
            known = isinstance(source, ConstantOp) and splat(value) is not None and not isinstance(op, Procedure)
            if isinstance(source, DlOp) and (known or self._candidates.reads_through(op, index)):
                # A number that many ops share, or a crop, comes from the op that reads it here.
                self._add(source, parts if known else origins(source.location) or parts)
            elif value not in self.inputs:
                self.inputs.append(value)
        self._ops[op] = parts

    def structure(self, results: Sequence[SSAValue]) -> Hashable | None:
        """What groups share whose kernels are equal and stay so; None for one whose kernel may become another one than others.

        Of two contractions, what a kernel is made for hangs on masks and on who makes its arguments; a movement alone may be
        done without; sizes have names that hang on the program's.
        """
        contractions = sum(isinstance(op, Contraction) for op in self._ops)
        if self.sizes or contractions > 1 or all(isinstance(op, Movement) for op in self._ops):
            return None
        numbers = {value: k for k, value in enumerate(self.inputs)}
        ops: list[Hashable] = []
        for op, parts in self._ops.items():
            read = tuple([numbers[v] for v in op.operands])
            made = tuple([r.type for r in op.results])
            ops.append((type(op), read, tuple(op.properties.items()), made, self._origins[parts[0]] if parts else None))
            for result in op.results:
                numbers[result] = len(numbers)
        given = tuple([(v.type, v in self._candidates.constant) for v in self.inputs])
        return given, tuple(ops), tuple([numbers[r] for r in results])

    @property
    def location(self) -> LocationAttr:
        return FusedLoc(ArrayAttr(list(self._origins)), NoneAttr()) if self._origins else UnknownLoc()

    def kernel(self, name: str, results: Sequence[SSAValue]) -> KernelOp:
        """The kernel, whose ops are located by their place in the list of origins."""
        typed = self._sizes.typed
        kernel = empty_kernel(name, [typed(v.type) for v in self.inputs], [typed(r.type) for r in results])
        if self.sizes:
            kernel.attributes[REPRESENTATIVE] = attribute(self._sizes.representative(self._ranges))
        values: dict[SSAValue, SSAValue] = dict(zip(self.inputs, kernel.body.block.args, strict=True))
        for outer, inner in values.items():
            inner.name_hint = outer.name_hint or ("w" if outer in self._candidates.constant else "x")
        for op, parts in self._ops.items():
            copy = type(op).create(
                operands=[values[v] for v in op.operands],
                result_types=[typed(r.type) for r in op.results],
                properties={name: self._sizes.property(value) for name, value in op.properties.items()},
            )
            require_decided(copy, op, self._sizes)
            copy.location = _place(self._origins[parts[0]]) if parts else UnknownLoc()
            kernel.body.block.add_op(copy)
            for old, new in zip(op.results, copy.results, strict=True):
                values[old] = new
                new.name_hint = old.name_hint or op.name.partition(".")[2]
        kernel.body.block.add_op(YieldOp([values[r] for r in results]))
        return kernel


@lru_cache(maxsize=256)
def _place(number: int) -> LocationAttr:
    """A place in a kernel's list of origins."""
    return NameLoc(StringAttr(f"#{number}"), NoneAttr())


def origins(location: Attribute) -> list[LocationAttr]:
    """The parts of a location, none of an unknown one."""
    match location:
        case FusedLoc(locations=parts):
            return list(cast("ArrayAttr[LocationAttr]", parts))
        case UnknownLoc():
            return []
        case _:
            return [cast(LocationAttr, location)]
