"""Results that are written over arguments that the caller gives away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from dlc.dialects.dl.base import shape_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.shaping import SliceOp
from dlc.dialects.dl.programs.program import DONOR, DispatchOp, KernelOp, YieldOp, empty_kernel
from dlc.errors import UnsupportedError
from dlc.ir import Block, BlockArgument, Context, IntegerAttr, ModuleOp, ModulePass, Operation, SSAValue, func
from dlc.passes.dl.rewriting import users
from dlc.passes.views import RENAMED, source_of

_COPY = "keep"


@dataclass(frozen=True)
class ReuseDonatedPass(ModulePass):
    """`reuse-donated`: a result that takes a donated argument's memory is made when nobody reads the argument any more.

        func.func @main(%p) -> (… {dl.donor = 0}) {             func.func @main(%p) -> (… {dl.donor = 0}) {
          %q = dl.dispatch @update(%p, %g)                  →     %d = dl.dispatch @matmul(%y, %p)
          %d = dl.dispatch @matmul(%y, %p)                        %q = dl.dispatch @update(%p, %g)
          func.return %q, %d }                                    func.return %q, %d }

    The kernel that makes it may read the argument itself where each element of the result is made of that at its own place.
    Where that is not so, or the order cannot be, the result is made elsewhere and copied in the end. Requires kernels with
    one dispatch each, so run it before `dedupe-kernels`. Raises UnsupportedError for a donated argument that is another
    result than its own as it stands.
    """

    name = "reuse-donated"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for main in [f for f in op.ops if isinstance(f, func.FuncOp) and f.res_attrs is not None]:
            assert main.res_attrs is not None
            donors = [cast("IntegerAttr | None", named.data.get(DONOR)) for named in main.res_attrs]
            pairs = {k: main.args[donor.value.data] for k, donor in enumerate(donors) if donor is not None}
            if pairs:
                _Donations(op, main, pairs).settle()


class _Donations:
    """The results of a function that are written over arguments, by place."""

    def __init__(self, module: ModuleOp, main: func.FuncOp, pairs: dict[int, BlockArgument]) -> None:
        self.module = module
        self.kernels = {k.symbol: k for k in module.ops if isinstance(k, KernelOp)}
        self.block = main.body.block
        self.returned = cast(func.ReturnOp, main.body.block.last_op)
        self.pairs = pairs
        # Where each op stands; anew once some were moved.
        self.position: dict[Operation, int] = {}

    def settle(self) -> None:
        donated = set(self.pairs.values())
        for k, value in enumerate(self.returned.operands):
            root, _ = source_of(value)
            if root in donated and self.pairs.get(k) is not root:
                name = root.name_hint
                raise UnsupportedError(f"reuse-donated: result {k} is the donated argument {name}; do not donate it")
        for k, argument in self.pairs.items():
            self.order(k, argument)
        for k, argument in self.pairs.items():
            if source_of(self.returned.operands[k])[0] is not argument and not self.is_settled(k, argument):
                self.returned.operands[k] = self.copied(self.returned.operands[k])

    def order(self, k: int, argument: BlockArgument) -> None:
        """Moves what makes a result, and what depends on that, behind the last reader of the argument."""
        writer, reading = self.writer(k), self.readers(argument)
        if writer is None:
            return
        position = self.positions()
        last = max((r for r in reading if r is not writer), key=lambda r: position[r], default=writer)
        if position[last] <= position[writer]:
            return
        moved: dict[Operation, None] = {writer: None}
        for op in list(self.block.ops)[position[writer] + 1 : position[last] + 1]:
            if any(inner_operand.owner in moved for inner in op.walk() for inner_operand in inner.operands):
                moved[op] = None
        if last in moved:
            return
        anchor = last
        for op in moved:
            op.detach()
            self.block.insert_op_after(op, anchor)
            anchor = op
        self.position.clear()

    def positions(self) -> dict[Operation, int]:
        if not self.position:
            self.position |= {op: number for number, op in enumerate(self.block.ops)}
        return self.position

    def is_settled(self, k: int, argument: BlockArgument) -> bool:
        """Whether a result may be written over an argument."""
        writer, reading = self.writer(k), self.readers(argument)
        if writer is None:
            return False
        position = self.positions()
        if any(position[r] > position[writer] for r in reading):
            return False
        result = writer.outputs.index(source_of(self.returned.operands[k])[0])
        places = [i for i, v in enumerate(writer.arguments) if source_of(v)[0] is argument]
        return all(_stays_in_place(self.kernels[writer.symbol], i, result) for i in places)

    def writer(self, k: int) -> DispatchOp | None:
        """The dispatch that makes a result, whole."""
        value = self.returned.operands[k]
        while isinstance(value.owner, RENAMED):
            value = value.owner.x
        return value.owner if isinstance(value.owner, DispatchOp) and value.owner.parent is self.block else None

    def readers(self, argument: BlockArgument) -> list[Operation]:
        """What reads an argument before the function ends."""
        return [op for op in readers(argument) if op is not self.returned]

    def copied(self, value: SSAValue) -> SSAValue:
        """A copy of a value, made in the end."""
        names = {*self.kernels}
        name = next(n for n in (f"{_COPY}_{i}" if i else _COPY for i in range(len(names) + 1)) if n not in names)
        kernel = empty_kernel(name, [value.type], [value.type])
        kernel.body.block.add_op(YieldOp([kernel.body.block.args[0]]))
        kernel.location = self.returned.location
        self.kernels[name] = kernel
        self.module.body.block.add_op(kernel)
        dispatch = DispatchOp(name, [value], [value.type])
        Build(self.returned).insert(dispatch)
        self.position.clear()
        return dispatch.outputs[0]


def readers(value: SSAValue) -> list[Operation]:
    """The ops of a value's block that read it or a part of it, in themselves or in their bodies."""
    found: list[Operation] = []
    pending = [value]
    while pending:
        for user in users(pending.pop()):
            if isinstance(user, (*RENAMED, SliceOp)):
                pending.append(user.result)
            else:
                found.append(user)
    return found


def _stays_in_place(kernel: KernelOp, argument: int, result: int) -> bool:
    """Whether an argument of a kernel matters to one of its results alone, each element to that at its own place."""
    body: Block = kernel.body.block
    given, made = body.args[argument], kernel.yielded[result]
    met: set[SSAValue] = {given}
    pending: list[SSAValue] = [given]
    while pending:
        for use in pending.pop().uses:
            op = use.operation
            if not isinstance(op, Elementwise) or any(shape_of(r) != shape_of(given) for r in op.results):
                return False
            inner = [r for r in op.results if r is not made and r not in met]
            met |= set(inner)
            pending += inner
    return not met.intersection(kernel.yielded)
