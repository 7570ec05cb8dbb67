"""Merge kernels that compute arrays of one shape from the same arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataMovement, Elementwise
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp, empty_kernel
from dlc.ir import ArrayAttr, Block, Context, FusedLoc, ModuleOp, NameLoc, NoneAttr, Operation, SSAValue, erase_op, walk_ops
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import program_blocks
from dlc.passes.dl.simplification.cse import merge_equal_ops
from dlc.passes.fusion.dedupe_kernels import strip_numeric_suffix
from dlc.passes.fusion.iteration_spaces import MAX_KERNEL_RESULTS
from dlc.passes.fusion.outline import indexed_location, location_components

# Maximum ops of a merged kernel, which bounds the time to compile it.
_MAX_KERNEL_OPS = 256
# Minimum part, in percent, of the bytes that two kernels read and write that the merged kernel does not read again.
_MIN_SAVED_PERCENT = 25
# Earlier kernels with which a kernel is compared.
_MAX_CANDIDATES = 8


@dataclass(frozen=True)
class MergeKernelsPass(TargetPass):
    """`merge-kernels`: merges kernels that compute arrays of one shape, part by part, from the same arrays.

        %a = dl.dispatch @k(%u, %v);  %b = dl.dispatch @l(%v, %u)   →   %a, %b = dl.dispatch @k_1(%u, %v)

    The merged kernel reads each array once and computes common terms once. Such kernels are the coupled stencils of several
    fields, and their derivatives: `form-kernels` forms one for each concatenation of an interior and borders. Both kernels have
    elementwise ops, data movement and concatenations only, and static shapes. No op up to the second kernel reads a result of
    the first one. A merged kernel has at most three results. Only for CPUs.

    Requires `form-kernels`, before layouts are assigned.
    """

    name = "merge-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.target.groups is not None:
            return
        kernels = {kernel.symbol: kernel for kernel in op.ops if isinstance(kernel, KernelOp)}
        merged_kernels = set[str]()
        for block in program_blocks(op):
            _BlockMerger(op, block, kernels, merged_kernels).run()
        for name in merged_kernels - {dispatch.symbol for dispatch in walk_ops(op, DispatchOp)}:
            erase_op(kernels[name])


class _BlockMerger:
    """Merge kernels of one block; record the names of those that a new kernel replaces in `merged_kernels`."""

    def __init__(self, module: ModuleOp, block: Block, kernels: dict[str, KernelOp], merged_kernels: set[str]) -> None:
        self.module, self.block, self.kernels, self.merged_kernels = module, block, kernels, merged_kernels
        self.positions = {op: k for k, op in enumerate(block.ops)}

    def run(self) -> None:
        candidates = deque[DispatchOp](maxlen=_MAX_CANDIDATES)
        for op in list(self.block.ops):
            if isinstance(op, DispatchOp) and _has_parts(self.kernels[op.symbol]):
                first = next((d for d in candidates if self.can_merge(d, op)), None)
                merged = None if first is None else self.merge(first, op)
                if first is not None and merged is not None:
                    candidates.remove(first)
                candidates.append(merged or op)

    def can_merge(self, first: DispatchOp, second: DispatchOp) -> bool:
        """Return whether two kernels can be one kernel, at the position of the second, that reads much less memory."""
        results = (*first.outputs, *second.outputs)
        if len({shape_of(r) for r in results}) != 1 or len(results) > MAX_KERNEL_RESULTS:
            return False
        saved = _num_bytes(set(first.arguments) & set(second.arguments))
        total = _num_bytes((*first.arguments, *second.arguments, *results))
        size = sum(len(self.kernels[d.symbol].body.block.ops) for d in (first, second))
        if 100 * saved < _MIN_SAVED_PERCENT * total or size > _MAX_KERNEL_OPS:
            return False
        return all(self._position(use.operation) > self.positions[second] for r in first.outputs for use in r.uses)

    def _position(self, op: Operation) -> int:
        """Return the position of the op of the block that is `op` or contains it."""
        while op.parent is not self.block:
            op = cast(Operation, op.parent_op())
        return self.positions[op]

    def merge(self, first: DispatchOp, second: DispatchOp) -> DispatchOp | None:
        """Replace two dispatches by one of a merged kernel and return it; None, without a change, if results are equal."""
        arguments = list(dict.fromkeys((*first.arguments, *second.arguments)))
        outputs = [*first.outputs, *second.outputs]
        kernel = self._merged_kernel((first, second), arguments)
        if len(set(kernel.yielded)) < len(outputs):
            return None
        self.module.body.block.add_op(kernel)
        self.kernels[kernel.symbol] = kernel
        self.merged_kernels |= {first.symbol, second.symbol}
        merged = DispatchOp(kernel.symbol, arguments, [r.type for r in outputs])
        if locations := [*location_components(first.location), *location_components(second.location)]:
            merged.location = FusedLoc(ArrayAttr(locations), NoneAttr())
        self.block.insert_op_after(merged, second)
        self.positions[merged] = self.positions[second]
        for old, new in zip(outputs, merged.outputs, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        for dispatch in (second, first):
            erase_op(dispatch)
        return merged

    def _merged_kernel(self, dispatches: Sequence[DispatchOp], arguments: Sequence[SSAValue]) -> KernelOp:
        """Return a kernel with the ops and results of the kernels of `dispatches`, in order."""
        result_types = [r.type for dispatch in dispatches for r in dispatch.outputs]
        kernel = empty_kernel(self._unused_name(dispatches[0].symbol), [v.type for v in arguments], result_types)
        block, results, first_location = kernel.body.block, list[SSAValue](), 0
        inner: dict[SSAValue, SSAValue] = dict(zip(arguments, block.args, strict=True))
        for dispatch in dispatches:
            source = self.kernels[dispatch.symbol]
            outer = zip(source.body.block.args, dispatch.arguments, strict=True)
            mapping: dict[SSAValue, SSAValue] = {parameter: inner[v] for parameter, v in outer}
            for parameter, value in mapping.items():
                value.name_hint = value.name_hint or parameter.name_hint
            _append_ops(block, source, mapping, first_location)
            results += [mapping[v] for v in source.yielded]
            first_location += len(location_components(dispatch.location))
        block.add_op(YieldOp(results))
        merge_equal_ops(block)
        return kernel

    def _unused_name(self, name: str) -> str:
        stem, number = strip_numeric_suffix(name), 1
        while (unused := f"{stem}_{number}") in self.kernels:
            number += 1
        return unused


def _append_ops(block: Block, kernel: KernelOp, mapping: dict[SSAValue, SSAValue], first_location: int) -> None:
    """Append copies of a kernel's ops, except its yield; their locations `#k` become `#(k + first_location)`."""
    for op in kernel.body.block.ops:
        if not isinstance(op, YieldOp):
            block.add_op(copy := op.clone(mapping))
            if isinstance(op.location, NameLoc):
                copy.location = indexed_location(int(op.location.desc.data.removeprefix("#")) + first_location)


def _has_parts(kernel: KernelOp) -> bool:
    """Return whether a kernel computes parts of static results, elementwise."""
    ops = [op for op in kernel.body.block.ops if not isinstance(op, YieldOp)]
    is_elementwise = all(isinstance(op, Elementwise | DataMovement | ConcatOp | ConstantOp) for op in ops)
    return is_elementwise and not kernel.representative and any(isinstance(op, ConcatOp) for op in ops)


def _num_bytes(values: Iterable[SSAValue]) -> int:
    return sum(prod(cast("tuple[int, ...]", shape_of(v))) * numpy_dtype(element_type_of(v)).itemsize for v in values)
