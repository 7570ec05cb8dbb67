"""Dataflow analysis: find contraction operands with blocks of zeros, which masks leave in attention and its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MulOp, NegOp, SelectOp, SubOp
from dlc.dialects.dl.arithmetic.functions import ExpOp
from dlc.dialects.dl.base import DlOp, attribute
from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, SliceOp, TransposeOp
from dlc.dialects.dl.programs.program import ZEROS, DispatchOp, KernelOp
from dlc.dialects.dl.reductions.normalization import SoftmaxOp
from dlc.ir import BlockArgument, Context, ModuleOp, ModulePass, Operation, SSAValue, SymbolRefAttr
from dlc.passes.dl.rewriting import program_blocks, splat, users
from dlc.passes.fusion.kernel_table import KernelTable

# Scores up to this value count as masked: their softmax weight underflows to 0 next to any other score.
_MAX_MASKED_SCORE = -1e4


class _Fact(Enum):
    """A lattice value: what is known about the masked elements of a tensor."""

    MASKED_SCORES = "masked scores"
    ZEROS = "zeros"


@dataclass(frozen=True)
class FindZerosPass(ModulePass):
    """`find-zeros`: mark the arguments of contraction kernels that may have blocks of zeros.

        %s = dl.dispatch @scores(%q, %k, %mask)         // select(%mask, q·k, -∞)
        %p = dl.dispatch @softmax(%s)
        dl.dispatch @values(%p, %v);  dl.dispatch @backward(%g, %v, %p)
      →
        dl.kernel @scores(…) attributes {zeros = [2]};  dl.kernel @values(…) attributes {zeros = [0]};  …

    Masked positions have zero weight. Products with these weights, and their gradients, are zero as well. Masks mostly
    cover blocks (future positions, padding), so kernels test at run time which blocks are all zeros, and skip their
    products and results. A kernel is cloned if its dispatches disagree about their arguments.
    """

    name = "find-zeros"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        analysis = _ZeroAnalysis(op)
        for block in program_blocks(op):
            facts = dict[SSAValue, _Fact]()
            for inner in block.ops:
                if isinstance(inner, DispatchOp):
                    analysis.annotate_dispatch(inner, facts)
                elif isinstance(inner, DlOp):
                    _propagate(inner, facts)


class _ZeroAnalysis:
    """Annotate kernels with the facts about their arguments."""

    def __init__(self, module: ModuleOp) -> None:
        self.kernels = KernelTable(module)
        # (kernel, facts about its arguments) → (specialized kernel, facts about its results).
        self.specializations: dict[tuple[str, tuple[_Fact | None, ...]], tuple[str, list[_Fact | None]]] = {}
        self.annotated: set[str] = set()

    def annotate_dispatch(self, dispatch: DispatchOp, known_facts: dict[SSAValue, _Fact]) -> None:
        """Annotate the kernel of a dispatch and propagate facts to its results; clone a kernel annotated for other facts."""
        symbol, facts = dispatch.symbol, tuple([known_facts.get(v) for v in dispatch.arguments])
        if (symbol, facts) not in self.specializations:
            kernel = self.kernels[symbol]
            if symbol in self.annotated:
                kernel = self.kernels.clone(symbol)
                kernel.attributes.pop(ZEROS, None)
            self.specializations[symbol, facts] = kernel.symbol, _annotate_kernel(kernel, facts)
            self.annotated.add(kernel.symbol)
        name, results = self.specializations[symbol, facts]
        if name != symbol:
            dispatch.callee = SymbolRefAttr(name)
        known_facts |= {value: fact for value, fact in zip(dispatch.outputs, results, strict=True) if fact is not None}


def _annotate_kernel(kernel: KernelOp, facts: Sequence[_Fact | None]) -> list[_Fact | None]:
    """Annotate the arguments whose zeros allow skipping; return the facts about the kernel's results."""
    arguments = kernel.body.block.args
    known_facts: dict[SSAValue, _Fact] = {a: fact for a, fact in zip(arguments, facts, strict=True) if fact is not None}
    for op in kernel.body.block.ops:
        if isinstance(op, DlOp):
            _propagate(op, known_facts)
    if sum(isinstance(op, Contraction) for op in kernel.body.block.ops) == 1:
        zero_arguments = [a.index for a in arguments if any(_zeros_allow_skipping(a, user, known_facts) for user in users(a))]
        if zero_arguments:
            kernel.attributes[ZEROS] = attribute(zero_arguments)
    return [known_facts.get(value) for value in kernel.yielded]


def _zeros_allow_skipping(value: BlockArgument, user: Operation, known_facts: Mapping[SSAValue, _Fact]) -> bool:
    """Return whether zeros of an argument make work of its user skippable: terms of a product, or masked scores."""
    match user:
        case SelectOp():
            return user.operands[0] is value and user.results[0] in known_facts
        case Contraction() | MulOp():
            return known_facts.get(value) == _Fact.ZEROS
        case _:
            return False


def _propagate(op: DlOp, known_facts: dict[SSAValue, _Fact]) -> None:
    """Record the fact about an op's result.

    select(mask, x, -∞) has masked scores;  exp(masked) = softmax(masked) = 0;  0·x = 0/x = f(0) = 0
    """
    facts = [known_facts.get(v) for v in op.operands]
    if not any(facts) and not isinstance(op, SelectOp):
        return
    match op, facts:
        case SelectOp(), [_, _, None] if (number := splat(op.operands[2])) is not None and number <= _MAX_MASKED_SCORE:
            fact = _Fact.MASKED_SCORES
        case SelectOp(), [_, fact, _] if (number := splat(op.operands[2])) == 0:
            pass
        case SubOp(), [_Fact.MASKED_SCORES, None]:
            fact = _Fact.MASKED_SCORES
        case ((SoftmaxOp() | ExpOp()), [_Fact.MASKED_SCORES]):
            fact = _Fact.ZEROS
        case MulOp(), [a, b] if _Fact.ZEROS in (a, b):
            fact = _Fact.ZEROS
        case DivOp(), [_Fact.ZEROS, _]:
            fact = _Fact.ZEROS
        case ((AddOp() | SubOp()), [_Fact.ZEROS, _Fact.ZEROS]):
            fact = _Fact.ZEROS
        case ((NegOp() | CastOp() | TransposeOp() | ReshapeOp() | SliceOp() | BroadcastToOp()), [fact]):
            pass
        case _:
            return
    if fact is not None:
        known_facts[op.results[0]] = fact
