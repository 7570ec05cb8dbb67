"""Form kernels: fuse ops that can share one pass over memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp, ints, shape_of
from dlc.dialects.dl.library_kernels.loops import LoopsOp
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dialects.dl.programs.size_ranges import size_ranges
from dlc.ir import Attribute, Block, Context, ModuleOp, Operation, erase_op, func
from dlc.passes.base import ReportingPass, TargetPass
from dlc.passes.dl.rewriting import erase_unused, program_blocks
from dlc.passes.fusion.candidates import Candidates
from dlc.passes.fusion.fusion_groups import FusionGrouper, results_of
from dlc.passes.fusion.outline import Outline
from dlc.shapes.dims import Size
from dlc.target import Target

# A kernel is named after its ops, up to this many.
_MAX_NAMED_OPS = 5


@dataclass(frozen=True)
class FormKernelsPass(ReportingPass, TargetPass):
    """`form-kernels`: fuse ops into `dl.kernel`s, each run by a `dl.dispatch`.

        %c = dl.conv %x, %w;  %d = dl.add %c, %b;  %y = dl.relu %d;  %p = dl.pad %y, %zero
    →   %p = dl.dispatch @conv_add_relu_pad(%x, %w, %b)
        dl.kernel @conv_add_relu_pad(%x, %w, %b) { …; dl.yield %p }

    A contraction, window, reduction or gather is fused with the elementwise ops that follow it, then with a transpose, then
    with a pad with a constant. Other users of the padded value read a slice of it. Elementwise ops and row reductions of one
    shape also form kernels, with up to three results. Conversions of integer results to float are fused into their users, and
    so are slices, broadcasts and transposes if they need no copy. Reshapes, aligned contiguous slices of a buffer,
    concatenations of such slices, and weight expressions stay in the host program; scalar constants are copied into the kernels
    that read them.

    Attention, softmax(q·kᵀ)·v, is one kernel. If a cache does not hold whole rows, this needs an online softmax, which
    `exact` forbids.

    Symbolic sizes have kernel-local names, so that kernels can be compared; a dispatch maps them to the program's sizes.

    Requires composites to be decomposed, except for row composites. Afterwards functions contain only `dl.dispatch`,
    `dl.reshape`, `dl.view_as`, the slices and concatenations above, `dl.weight`, weight expressions, loops and
    branches. Equal groups that read the same kinds of values share a kernel. Exceptions are kernels in loops, and kernels
    of two contractions or of data movement only: they have one dispatch each, until `dedupe-kernels`.
    """

    name = "form-kernels"

    exact: bool = False

    def report(self, ctx: Context, op: ModuleOp) -> list[FormedKernel]:
        return form_kernels(op, self.target, self.exact)


@dataclass(frozen=True)
class FormedKernel:
    """The report on a kernel.

    Attributes:
        kernel: Its name.
        location: Its location.
        next_op: The next op or kernel, which was not fused, and its location; None at the end of the program.
        reason: Why `next_op` was not fused.
    """

    kernel: str
    location: Attribute
    next_op: tuple[str, Attribute] | None
    reason: str


def _display_name(op: Operation) -> str:
    if isinstance(op, LoopsOp):
        return op.kernel_name
    return f"kernel {op.symbol}" if isinstance(op, DispatchOp) else op.name.partition(".")[2]


def form_kernels(module: ModuleOp, target: Target, exact: bool = False) -> list[FormedKernel]:
    """Form the kernels of a program; report for each why it has no more ops."""
    names: dict[str, int] = {}
    kernel_by_deduplication_key: dict[Hashable, str] = {}
    formed: list[FormedKernel] = []
    for block in list(program_blocks(module)):
        _KernelFormer(module, block, target, exact, names, kernel_by_deduplication_key, formed).run()
    return formed


class _KernelFormer:
    """Form the kernels of one block."""

    def __init__(
        self,
        module: ModuleOp,
        block: Block,
        target: Target,
        exact: bool,
        names: dict[str, int],
        kernel_by_deduplication_key: dict[Hashable, str],
        formed: list[FormedKernel],
    ) -> None:
        self.module = module
        self.block = block
        self.candidates = Candidates(block, target)
        self.grouper = FusionGrouper(self.candidates, target, exact)
        self.ranges = size_ranges(module)
        self.names = names
        # Kernel names by deduplication key. Kernels in loops are not shared, since later passes may specialize them.
        self.kernel_by_deduplication_key = kernel_by_deduplication_key
        self.allows_sharing = isinstance(block.parent_op(), func.FuncOp)
        self.formed = formed

    def run(self) -> None:
        # In the second round, ops that were deferred but that no group has fused start groups of their own.
        for allows_waiting in (True, False):
            for op in list(self.block.ops):
                if op.parent is None or not isinstance(op, DlOp) or op not in self.candidates:
                    continue
                if not any(r.first_use for r in op.results):
                    erase_unused([op])
                elif not (allows_waiting and self.grouper.should_wait(op)):
                    self.form(self.grouper.grow(op))

    def form(self, members: Sequence[DlOp]) -> None:
        """Move a group into a kernel and insert its dispatch at the last op."""
        last, pad = members[-1], None
        results = results_of(members)
        if isinstance(last, PadOp) and len(members) > 1:
            # Other ops may read the value that the pad extends.
            last, pad, results = members[-2], last, [last.result]
        outline = Outline(members, self.candidates, self.ranges)
        deduplication_key = outline.deduplication_key(results) if self.allows_sharing else None
        name = self.kernel_by_deduplication_key.get(deduplication_key) if deduplication_key is not None else None
        if name is None:
            name = self.unique_name(members)
            self.module.body.block.add_op(outline.kernel(name, results))
            if deduplication_key is not None:
                self.kernel_by_deduplication_key[deduplication_key] = name
        dispatch = DispatchOp(name, outline.inputs, [r.type for r in results], outline.sizes)
        dispatch.location = outline.location
        end = self.grouper.end
        next_op = (_display_name(end.op), end.op.location) if end.op is not None else None
        self.formed.append(FormedKernel(name, dispatch.location, next_op, end.reason))
        self.block.insert_op_after(dispatch, last)
        self.candidates.position[dispatch] = self.candidates.position[last]
        for old, new in zip(results, dispatch.outputs, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        if pad is not None:
            self.slice_padding(pad, set(members), dispatch)
        sources = [v.owner for op in members for v in op.operands if isinstance(v.owner, Operation)]
        for op in reversed(members):
            erase_op(op)
        erase_unused(sources)

    def slice_padding(self, pad: PadOp, members: set[Operation], dispatch: DispatchOp) -> None:
        """Replace the padded value in other users by a slice of the kernel's result."""
        if all(use.operation in members for use in pad.x.uses):
            return
        starts, shape = ints(pad.low), shape_of(pad.x)
        limits: list[Size] = [a + s for a, s in zip(starts, shape, strict=True)]
        slice_ = SliceOp.make(dispatch.outputs[0], starts=starts, limits=limits, strides=(1,) * len(starts))
        self.block.insert_op_after(slice_, dispatch)
        self.candidates.position[slice_] = self.candidates.position[dispatch]
        pad.x.replace_uses_with_if(slice_.result, lambda use: use.operation not in members)

    def unique_name(self, members: Sequence[DlOp]) -> str:
        """Return a unique kernel name, composed of the names of its ops."""
        op_names = [op.kernel_name if isinstance(op, LoopsOp) else op.name.rpartition(".")[2] for op in members]
        op_names = [w for k, w in enumerate(op_names) if k == 0 or w != op_names[k - 1]]
        if len(op_names) > _MAX_NAMED_OPS:
            op_names = [*op_names[: _MAX_NAMED_OPS - 1], f"{len(op_names) - _MAX_NAMED_OPS}_more", op_names[-1]]
        stem = "_".join(op_names)
        count = self.names[stem] = self.names.get(stem, -1) + 1
        return f"{stem}_{count}" if count else stem
