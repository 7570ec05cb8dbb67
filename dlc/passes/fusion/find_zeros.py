"""Where masks leave blocks of zeros, in attention and its derivative."""

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

# What is known of the elements that a mask hides.
_LOWEST, _ZERO = "lowest", "zero"
# A score as low as this has no weight beside any other.
_HIDES = -1e4


@dataclass(frozen=True)
class FindZerosPass(ModulePass):
    """`find-zeros`: kernels of contractions say which arguments may have blocks of zeros.

        %s = dl.dispatch @scores(%q, %k, %mask)         // select(%mask, q·k, -∞)
        %p = dl.dispatch @softmax(%s)
        dl.dispatch @values(%p, %v);  dl.dispatch @backward(%g, %v, %p)
      →
        dl.kernel @scores(…) attributes {zeros = [2]};  dl.kernel @values(…) attributes {zeros = [0]};  …

    Scores that a mask hides have no weight: weights are zeros there, and so is what is multiplied by them, and what the
    backward pass makes of that. A mask hides blocks mostly (what comes later, what is padding), so that it is worth a look,
    when the kernel runs, what of a sum is zeros, and which results are of no weight or hidden. A kernel that is given both
    what is known and what is not becomes two.
    """

    name = "find-zeros"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        marker = _Marker(op)
        for block in program_blocks(op):
            known = dict[SSAValue, str]()
            for inner in block.ops:
                if isinstance(inner, DispatchOp):
                    marker.through(inner, known)
                elif isinstance(inner, DlOp):
                    _note(inner, known)


class _Marker:
    """Marks kernels by what is known of their arguments."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module
        self.kernels = {k.symbol: k for k in module.ops if isinstance(k, KernelOp)}
        # By a kernel and what is known of its arguments: the kernel for that, and what is known of its results.
        self.met: dict[tuple[str, tuple[str | None, ...]], tuple[str, list[str | None]]] = {}
        self.marked: set[str] = set()

    def through(self, dispatch: DispatchOp, known: dict[SSAValue, str]) -> None:
        """Notes what is known of a dispatch's results; it runs a kernel of its own if others know something else."""
        symbol, facts = dispatch.symbol, tuple([known.get(v) for v in dispatch.arguments])
        if (symbol, facts) not in self.met:
            kernel = self.kernels[symbol] if symbol not in self.marked else self.copy(symbol)
            self.met[symbol, facts] = kernel.symbol, _marked(kernel, facts)
            self.marked.add(kernel.symbol)
        name, results = self.met[symbol, facts]
        if name != symbol:
            dispatch.callee = SymbolRefAttr(name)
        known |= {value: fact for value, fact in zip(dispatch.outputs, results, strict=True) if fact is not None}

    def copy(self, symbol: str) -> KernelOp:
        copy, original = self.kernels[symbol].clone(), self.kernels[symbol]
        copy.attributes.pop(ZEROS, None)
        name = next(n for n in (f"{symbol}_{k}" for k in count(1)) if n not in self.kernels)
        copy.sym_name = StringAttr(name)
        self.kernels[name] = copy
        self.module.body.block.insert_op_after(copy, original)
        return copy


def _marked(kernel: KernelOp, facts: Sequence[str | None]) -> list[str | None]:
    """Notes in a kernel which arguments are worth a look for zeros; what is known of its results."""
    arguments = kernel.body.block.args
    inside: dict[SSAValue, str] = {a: fact for a, fact in zip(arguments, facts, strict=True) if fact is not None}
    for op in kernel.body.block.ops:
        if isinstance(op, DlOp):
            _note(op, inside)
    if sum(isinstance(op, Contraction) for op in kernel.body.block.ops) == 1:
        found = [a.index for a in arguments if any(_hides(a, user, inside) for user in users(a))]
        if found:
            kernel.attributes[ZEROS] = attribute(found)
    return [inside.get(value) for value in kernel.yielded]


def _hides(value: BlockArgument, user: Operation, known: Mapping[SSAValue, str]) -> bool:
    """Whether zeros of an argument of a kernel hide what an op computes: terms of sums, products, or scores."""
    match user:
        case SelectOp():
            return user.operands[0] is value and user.results[0] in known
        case Contraction() | MulOp():
            return known.get(value) == _ZERO
        case _:
            return False


def _note(op: DlOp, known: dict[SSAValue, str]) -> None:
    """Notes what is known of an op's result.

    select(mask, x, -∞) and less are lowest;  exp(lowest) = softmax(lowest) = 0;  0·x = 0/x = f(0) = 0
    """
    facts = [known.get(v) for v in op.operands]
    if not any(facts) and not isinstance(op, SelectOp):
        return
    match op, facts:
        case SelectOp(), [_, _, None] if (number := splat(op.operands[2])) is not None and number <= _HIDES:
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
        known[op.results[0]] = fact
