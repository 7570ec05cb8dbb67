"""Kernels: ops that share one pass over memory move out of the host program."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp, ints, shape_of
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dialects.dl.programs.ranges import ranges_of
from dlc.dims import Size
from dlc.ir import Attribute, Block, Context, ModuleOp, Operation, func
from dlc.passes.base import TargetPass, TellingPass
from dlc.passes.dl.rewriting import erase_unused, program_blocks
from dlc.passes.fusion.candidates import Candidates
from dlc.passes.fusion.groups import Grouper, results_of
from dlc.passes.fusion.outline import Outline
from dlc.target import Target

# A name says what a kernel does, as long as it is short.
_NAMED_OPS = 5


@dataclass(frozen=True)
class FormKernelsPass(TellingPass, TargetPass):
    """`form-kernels`: ops that share a kernel become a `dl.kernel`, run by a `dl.dispatch`.

        %c = dl.conv %x, %w;  %d = dl.add %c, %b;  %y = dl.relu %d;  %p = dl.pad %y, %zero
    →   %p = dl.dispatch @conv_add_relu_pad(%x, %w, %b)
        dl.kernel @conv_add_relu_pad(%x, %w, %b) { …; dl.yield %p }

    A contraction, window, reduction or gather takes the elementwise ops that follow it, then a transpose, then a pad with a
    constant; other readers of the padded value read a slice of it. Elementwise ops and reductions of rows that share a shape
    form kernels too, with up to three results. A kernel that makes integers leaves it to who reads them to make floats of
    them. Slices, broadcasts and transposes are read through where that costs nothing. Reshapes, slices that are one piece of
    a buffer, at a multiple of the target's alignment, what is joined of such pieces that heavy kernels make, and expressions
    of weights stay in the host program; known numbers go into the kernels that read them.

    Sums of rows by weights that are made of them, softmax(q·kᵀ)·v, are one kernel: where the cache does not hold rows, if
    their sums can run, unless they are to be `exact`.

    Symbolic sizes get names of the kernel's own, so that equal kernels are equal; a dispatch says what they stand for.

    Requires composites decomposed but for rows. Leaves only `dl.dispatch`, `dl.reshape`, `dl.words`, such `dl.slice`, such
    `dl.concat`, `dl.weight`, expressions of weights, loops and branches in functions. Kernels of loops, of two contractions or
    of movements alone have one dispatch each, until `dedupe-kernels`; others are shared where equal groups read the same kinds
    of values.
    """

    name = "form-kernels"

    exact: bool = False

    def tell(self, ctx: Context, op: ModuleOp) -> list[Formed]:
        return form_kernels(op, self.target, self.exact)


@dataclass(frozen=True)
class Formed:
    """A kernel that was formed, and where it comes from; the op or kernel before which it ended, if there is one, and where it
    comes from; why it did.
    """

    kernel: str
    location: Attribute
    before: tuple[str, Attribute] | None
    reason: str


def _called(op: Operation) -> str:
    return f"kernel {op.symbol}" if isinstance(op, DispatchOp) else op.name.partition(".")[2]


def form_kernels(module: ModuleOp, target: Target, exact: bool = False) -> list[Formed]:
    """Forms the kernels of a program, and says why each is no larger."""
    names: dict[str, int] = {}
    shared: dict[Hashable, str] = {}
    formed: list[Formed] = []
    for block in list(program_blocks(module)):
        _KernelFormer(module, block, target, exact, names, shared, formed).run()
    return formed


class _KernelFormer:
    def __init__(
        self,
        module: ModuleOp,
        block: Block,
        target: Target,
        exact: bool,
        names: dict[str, int],
        shared: dict[Hashable, str],
        formed: list[Formed],
    ) -> None:
        self.module = module
        self.block = block
        self.candidates = Candidates(block, target)
        self.grouper = Grouper(self.candidates, target, exact)
        self.ranges = ranges_of(module)
        self.names = names
        # Kernels by what equal ones have in common. Those of loops may yet become others than those around them.
        self.shared = shared
        self.shares = isinstance(block.parent_op(), func.FuncOp)
        self.formed = formed

    def run(self) -> None:
        # What waited the first time and was taken by nobody starts a group the second time.
        for may_wait in (True, False):
            for op in list(self.block.ops):
                if op.parent is None or not isinstance(op, DlOp) or op not in self.candidates:
                    continue
                if not any(r.first_use for r in op.results):
                    erase_unused([op])
                elif not (may_wait and self.grouper.waits(op)):
                    self.form(self.grouper.grow(op))

    def form(self, members: Sequence[DlOp]) -> None:
        """Moves a group into a kernel and puts its dispatch where the last op stood."""
        last, pad = members[-1], None
        results = results_of(members)
        if isinstance(last, PadOp) and len(members) > 1:
            # Others may read the value before the pad does.
            last, pad, results = members[-2], last, [last.result]
        outline = Outline(members, self.candidates, self.ranges)
        structure = outline.structure(results) if self.shares else None
        name = self.shared.get(structure) if structure is not None else None
        if name is None:
            name = self.unique(members)
            self.module.body.block.add_op(outline.kernel(name, results))
            if structure is not None:
                self.shared[structure] = name
        dispatch = DispatchOp(name, outline.inputs, [r.type for r in results], outline.sizes)
        dispatch.location = outline.location
        end = self.grouper.end
        before = (_called(end.op), end.op.location) if end.op is not None else None
        self.formed.append(Formed(name, dispatch.location, before, end.reason))
        self.block.insert_op_after(dispatch, last)
        self.candidates.position[dispatch] = self.candidates.position[last]
        for old, new in zip(results, dispatch.outputs, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        if pad is not None:
            self.crop(pad, set(members), dispatch)
        sources = [v.owner for op in members for v in op.operands if isinstance(v.owner, Operation)]
        for op in reversed(members):
            op.detach()
            op.erase()
        erase_unused(sources)

    def crop(self, pad: PadOp, members: set[Operation], dispatch: DispatchOp) -> None:
        """Other readers of the padded value read a slice of the kernel's result."""
        if all(use.operation in members for use in pad.x.uses):
            return
        low, shape = ints(pad.low), shape_of(pad.x)
        limits: list[Size] = [a + s for a, s in zip(low, shape, strict=True)]
        slice_ = SliceOp.make(dispatch.outputs[0], starts=low, limits=limits, strides=(1,) * len(low))
        self.block.insert_op_after(slice_, dispatch)
        self.candidates.position[slice_] = self.candidates.position[dispatch]
        pad.x.replace_uses_with_if(slice_.result, lambda use: use.operation not in members)

    def unique(self, members: Sequence[DlOp]) -> str:
        """A name for a kernel, made from its ops."""
        words = [op.name.removeprefix("dl.") for op in members]
        words = [w for k, w in enumerate(words) if k == 0 or w != words[k - 1]]
        if len(words) > _NAMED_OPS:
            words = [*words[: _NAMED_OPS - 1], f"{len(words) - _NAMED_OPS}_more", words[-1]]
        stem = "_".join(words)
        count = self.names[stem] = self.names.get(stem, -1) + 1
        return f"{stem}_{count}" if count else stem
