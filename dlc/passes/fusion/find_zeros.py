"""Find operands of contractions in which masks leave blocks of zeros: in attention and its derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from dlc.dialects.dl.arithmetic.conversion import CastOp
from dlc.dialects.dl.arithmetic.elementwise import AddOp, DivOp, MulOp, NegOp, SelectOp, SubOp
from dlc.dialects.dl.arithmetic.functions import ExpOp
from dlc.dialects.dl.base import DlOp, attribute
from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.movement.shaping import BroadcastToOp, ReshapeOp, SliceOp, TransposeOp
from dlc.dialects.dl.programs.program import ZEROS, DispatchOp, KernelOp
from dlc.dialects.dl.reductions.normalization import SoftmaxOp
from dlc.ir import BlockArgument, Context, ModuleOp, ModulePass, Operation, SSAValue, StringAttr, SymbolRefAttr
from dlc.passes.dl.rewriting import program_blocks, splat, users

# Facts about masked elements.
_LOWEST, _ZERO = "lowest", "zero"
# Maximum score of a masked element: its softmax weight is 0 next to any other score.
_MAX_MASKED_SCORE = -1e4


@dataclass(frozen=True)
class FindZerosPass(ModulePass):
    """`find-zeros`: mark the arguments of contraction kernels that may have blocks of zeros.

        %s = dl.dispatch @scores(%q, %k, %mask)         // select(%mask, q·k, -∞)
        %p = dl.dispatch @softmax(%s)
        dl.dispatch @values(%p, %v);  dl.dispatch @backward(%g, %v, %p)
      →
        dl.kernel @scores(…) attributes {zeros = [2]};  dl.kernel @values(…) attributes {zeros = [0]};  …

    Masked positions have zero weight. Products with these weights, and their gradients, are zero as well. Masks mostly
    cover blocks (future positions, padding), so kernels check at run time which blocks are all zeros, and skip these
    terms and results. A kernel whose dispatches have different facts is duplicated.
    """

    name = "find-zeros"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        marker = _Marker(op)
        for block in program_blocks(op):
            facts = dict[SSAValue, str]()
            for inner in block.ops:
                if isinstance(inner, DispatchOp):
                    marker.mark_dispatch(inner, facts)
                elif isinstance(inner, DlOp):
                    _propagate(inner, facts)


class _Marker:
    """Mark kernels by the facts about their arguments."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module
        self.kernels = {k.symbol: k for k in module.ops if isinstance(k, KernelOp)}
        # (kernel, facts about its arguments) → (specialized kernel, facts about its results).
        self.specializations: dict[tuple[str, tuple[str | None, ...]], tuple[str, list[str | None]]] = {}
        self.marked: set[str] = set()

    def mark_dispatch(self, dispatch: DispatchOp, known_facts: dict[SSAValue, str]) -> None:
        """Mark the kernel of a dispatch and propagate facts to the results; other facts need a copy of the kernel."""
        symbol, facts = dispatch.symbol, tuple([known_facts.get(v) for v in dispatch.arguments])
        if (symbol, facts) not in self.specializations:
            kernel = self.kernels[symbol] if symbol not in self.marked else self.copy(symbol)
            self.specializations[symbol, facts] = kernel.symbol, _mark_kernel(kernel, facts)
            self.marked.add(kernel.symbol)
        name, results = self.specializations[symbol, facts]
        if name != symbol:
            dispatch.callee = SymbolRefAttr(name)
        known_facts |= {value: fact for value, fact in zip(dispatch.outputs, results, strict=True) if fact is not None}

    def copy(self, symbol: str) -> KernelOp:
        """Insert a copy of a kernel, without marks, and return it."""
        copy, original = self.kernels[symbol].clone(), self.kernels[symbol]
        copy.attributes.pop(ZEROS, None)
        name = next(n for n in (f"{symbol}_{k}" for k in count(1)) if n not in self.kernels)
        copy.sym_name = StringAttr(name)
        self.kernels[name] = copy
        self.module.body.block.insert_op_after(copy, original)
        return copy


def _mark_kernel(kernel: KernelOp, facts: Sequence[str | None]) -> list[str | None]:
    """Mark the arguments whose zeros allow skipping; return the facts about the kernel's results."""
    arguments = kernel.body.block.args
    known_facts: dict[SSAValue, str] = {a: fact for a, fact in zip(arguments, facts, strict=True) if fact is not None}
    for op in kernel.body.block.ops:
        if isinstance(op, DlOp):
            _propagate(op, known_facts)
    if sum(isinstance(op, Contraction) for op in kernel.body.block.ops) == 1:
        zero_arguments = [a.index for a in arguments if any(_zeros_allow_skipping(a, user, known_facts) for user in users(a))]
        if zero_arguments:
            kernel.attributes[ZEROS] = attribute(zero_arguments)
    return [known_facts.get(value) for value in kernel.yielded]


def _zeros_allow_skipping(value: BlockArgument, user: Operation, known_facts: Mapping[SSAValue, str]) -> bool:
    """Return whether zeros of an argument allow parts of an op to be skipped: a sum, a product, or masked scores."""
    match user:
        case SelectOp():
            return user.operands[0] is value and user.results[0] in known_facts
        case Contraction() | MulOp():
            return known_facts.get(value) == _ZERO
        case _:
            return False


def _propagate(op: DlOp, known_facts: dict[SSAValue, str]) -> None:
    """Record the fact about an op's result.

    select(mask, x, -∞) is lowest;  exp(lowest) = softmax(lowest) = 0;  0·x = 0/x = f(0) = 0
    """
    facts = [known_facts.get(v) for v in op.operands]
    if not any(facts) and not isinstance(op, SelectOp):
        return
    match op, facts:
        case SelectOp(), [_, _, None] if (number := splat(op.operands[2])) is not None and number <= _MAX_MASKED_SCORE:
            fact = _LOWEST
        case SelectOp(), [_, fact, _] if (number := splat(op.operands[2])) == 0:
            pass
        case SubOp(), ["lowest", None]:
            fact = _LOWEST
        case ((SoftmaxOp() | ExpOp()), ["lowest"]):
            fact = _ZERO
        case MulOp(), [a, b] if _ZERO in (a, b):
            fact = _ZERO
        case DivOp(), ["zero", _]:
            fact = _ZERO
        case ((AddOp() | SubOp()), ["zero", "zero"]):
            fact = _ZERO
        case ((NegOp() | CastOp() | TransposeOp() | ReshapeOp() | SliceOp() | BroadcastToOp()), [fact]):
            pass
        case _:
            return
    if fact is not None:
        known_facts[op.results[0]] = fact
