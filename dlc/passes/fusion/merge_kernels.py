"""Merge elementwise kernels that read the same arrays, or each other's results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataMovement, Elementwise, ScatterLike
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, YieldOp, empty_kernel
from dlc.ir import ArrayAttr, Block, Context, FusedLoc, ModuleOp, NameLoc, NoneAttr, Operation, SSAValue, erase_op, walk_ops
from dlc.passes.base import TargetPass
from dlc.passes.dl.rewriting import program_blocks
from dlc.passes.dl.simplification.cse import merge_equal_ops
from dlc.passes.fusion.dedupe_kernels import strip_numeric_suffix
from dlc.passes.fusion.outline import indexed_location, location_components
from dlc.passes.views import source_of
from dlc.shapes.dims import is_static

# Maximum ops of a merged kernel, which bounds the time to compile it, and maximum results: each one needs an address.
_MAX_KERNEL_OPS, _MAX_KERNEL_RESULTS = 384, 8
# Maximum ops of the shorter one of two kernels without parts: longer ones gain little, and merged kernels of repeated formulas
# are no longer equal, so that each one is compiled.
_MAX_SHORT_KERNEL_OPS = 48
# Minimum part, in percent, of the bytes that two kernels read and write that the merged kernel does not.
_MIN_SAVED_PERCENT = 25
# Kernels with results of at most this many elements are merged to save a launch, which takes 30 ns: as long as about 100
# operations on vectors (Zen 4).
_MAX_LAUNCH_BOUND_ELEMENTS = 1024
# Earlier kernels with which a kernel is compared.
_MAX_CANDIDATES = 8


@dataclass(frozen=True)
class MergeKernelsPass(TargetPass):
    """`merge-kernels`: merges elementwise kernels that compute arrays of one shape.

        %a = dl.dispatch @k(%u, %v);  %b = dl.dispatch @l(%a, %u)   →   %b = dl.dispatch @k_1(%u, %v)

    The merged kernel reads each array once and computes common terms once. Results of the first kernel that only the second
    one reads stay in registers. `form-kernels` forms more than one kernel where values have several users: in the derivatives
    of long formulas, and in coupled stencils of several fields, with one concatenation of an interior and borders each.

    Both kernels have static shapes, and elementwise ops, data movement, concatenations and pads only. No other op before the
    second one reads results of the first one. The second one reads them element by element, and neither has concatenations or
    pads then. The merged kernel reads and writes much less memory, or the arrays are so small that a launch takes longer.
    Kernels that read an array that the block may update in place stay separate. Only for CPUs.

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
        self.updated_arrays = {source_of(v)[0] for op in block.ops for v in self._updated_operands(op)}

    def _updated_operands(self, op: Operation) -> Sequence[SSAValue]:
        """Return the operands that an op may update in place."""
        if isinstance(op, DispatchOp):
            return op.arguments if any(isinstance(o, ScatterLike) for o in self.kernels[op.symbol].body.block.ops) else ()
        return op.operands if op.regions else ()

    def run(self) -> None:
        candidates = deque[DispatchOp](maxlen=_MAX_CANDIDATES)
        for op in list(self.block.ops):
            if not isinstance(op, DispatchOp) or not self._is_candidate(op):
                continue
            for first in reversed(candidates.copy()):
                merged = self.merge(first, op) if self.can_merge(first, op) else None
                if merged is not None:
                    candidates.remove(first)
                    op = merged
            candidates.append(op)

    def _is_candidate(self, dispatch: DispatchOp) -> bool:
        """Return whether a kernel computes static results of one shape, or parts of them, elementwise."""
        kernel = self.kernels[dispatch.symbol]
        ops = [op for op in kernel.body.block.ops if not isinstance(op, YieldOp)]
        shapes = {shape_of(r) for r in dispatch.outputs}
        if kernel.representative or len(shapes) > 1 or not all(map(is_static, shapes)):
            return False
        if not self.updated_arrays.isdisjoint(source_of(v)[0] for v in dispatch.arguments):
            return False
        if not all(isinstance(op, Elementwise | DataMovement | ConcatOp | PadOp | ConstantOp) for op in ops):
            return False
        return _has_parts(kernel) or shapes.issuperset(shape_of(op.results[0]) for op in ops if isinstance(op, Elementwise))

    def can_merge(self, first: DispatchOp, second: DispatchOp) -> bool:
        """Return whether two kernels can be one kernel, at the position of the second, that is much cheaper."""
        if shape_of(first.outputs[0]) != shape_of(second.outputs[0]):
            return False
        kernels = [self.kernels[d.symbol] for d in (first, second)]
        results = self._stored_results(first, second)
        sizes, have_parts = [len(kernel.body.block.ops) for kernel in kernels], list(map(_has_parts, kernels))
        if not 0 < len(results) <= _MAX_KERNEL_RESULTS or sum(sizes) > _MAX_KERNEL_OPS:
            return False
        if not any(have_parts) and min(sizes) > _MAX_SHORT_KERNEL_OPS:
            return False
        other_users = {use.operation for r in first.outputs for use in r.uses} - {second}
        if any(self._position(user) < self.positions[second] for user in other_users):
            return False
        forwarded = set(first.outputs) & set(second.arguments)
        parameters = [p for p, v in zip(kernels[1].body.block.args, second.arguments, strict=True) if v in forwarded]
        reads_elements = all(isinstance(use.operation, Elementwise) for p in parameters for use in p.uses)
        if any(have_parts) != all(have_parts) or (forwarded and (any(have_parts) or not reads_elements)):
            return False
        if _num_elements(results[0]) <= _MAX_LAUNCH_BOUND_ELEMENTS:
            return True
        total = _num_bytes((*first.arguments, *second.arguments, *first.outputs, *second.outputs))
        saved = total - _num_bytes((*self._merged_arguments(first, second), *results))
        return 100 * saved >= _MIN_SAVED_PERCENT * total

    def _merged_arguments(self, first: DispatchOp, second: DispatchOp) -> list[SSAValue]:
        return [v for v in dict.fromkeys((*first.arguments, *second.arguments)) if v not in first.outputs]

    def _stored_results(self, first: DispatchOp, second: DispatchOp) -> list[SSAValue]:
        """Return the results of two kernels that other ops read."""
        return [r for r in (*first.outputs, *second.outputs) if any(use.operation is not second for use in r.uses)]

    def _position(self, op: Operation) -> int:
        """Return the position of the op of the block that is `op` or contains it."""
        while op.parent is not self.block:
            op = cast(Operation, op.parent_op())
        return self.positions[op]

    def merge(self, first: DispatchOp, second: DispatchOp) -> DispatchOp | None:
        """Replace two dispatches by one of a merged kernel and return it; None, without a change, if results are equal."""
        outputs, arguments = self._stored_results(first, second), self._merged_arguments(first, second)
        kernel = self._merged_kernel((first, second), arguments, outputs)
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

    def _merged_kernel(
        self, dispatches: Sequence[DispatchOp], arguments: Sequence[SSAValue], outputs: Sequence[SSAValue]
    ) -> KernelOp:
        """Return a kernel with the ops of the kernels of `dispatches`, in order, and these results."""
        kernel = empty_kernel(self._unused_name(dispatches[0].symbol), [v.type for v in arguments], [v.type for v in outputs])
        block, first_location = kernel.body.block, 0
        inner: dict[SSAValue, SSAValue] = dict(zip(arguments, block.args, strict=True))
        for dispatch in dispatches:
            source = self.kernels[dispatch.symbol]
            outer = zip(source.body.block.args, dispatch.arguments, strict=True)
            mapping: dict[SSAValue, SSAValue] = {parameter: inner[v] for parameter, v in outer}
            for parameter, value in mapping.items():
                value.name_hint = value.name_hint or parameter.name_hint
            _append_ops(block, source, mapping, first_location)
            inner |= {v: mapping[y] for v, y in zip(dispatch.outputs, source.yielded, strict=True)}
            first_location += len(location_components(dispatch.location))
        block.add_op(YieldOp([inner[v] for v in outputs]))
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
    """Return whether a kernel computes parts of its results in separate loops."""
    return any(isinstance(op, ConcatOp | PadOp) for op in kernel.body.block.ops)


def _num_elements(value: SSAValue) -> int:
    return prod(cast("tuple[int, ...]", shape_of(value)))


def _num_bytes(values: Iterable[SSAValue]) -> int:
    return sum(_num_elements(v) * numpy_dtype(element_type_of(v)).itemsize for v in values)
