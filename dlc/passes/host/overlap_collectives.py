"""`overlap-collectives`: starts collectives early, and waits for them before their results are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from dlc.dialects import host
from dlc.dialects.dl.base import number
from dlc.dialects.dl.distributed.collectives import NONBLOCKING, AxisIndexOp
from dlc.dialects.dl.programs.program import DONOR
from dlc.dialects.entry import entry_of
from dlc.ir import Block, Context, ModuleOp, ModulePass, Operation, SSAValue, StringAttr, func, memref
from dlc.passes.host.lifetimes import accessed_buffers, aliases, written_buffers

_BUFFER_OPS = memref.AllocOp | host.BufferOp | host.WeightOp | host.ViewOp | memref.ReinterpretCastOp
_COMPUTE_OPS = host.LaunchOp | memref.CopyOp | host.ParallelOp
_CONTROL_OPS = host.IfOp | host.LoopOp | host.WhileOp
_RANK_INDEX = AxisIndexOp.name.removeprefix("dl.")


@dataclass(frozen=True)
class OverlapCollectivesPass(ModulePass):
    """Splits collectives into a start and a wait, with launches between them.

        host.launch @g(%a, %b)                        host.launch @g(%a, %b)
        host.launch @h(%a, %c)                        host.compute "all_reduce" (%b, %r) {settings = "{…, request: 0}"}
        host.compute "all_reduce" (%b, %r)       →    host.launch @h(%a, %c)
        host.launch @k(%r, %c, %y)                    host.compute "progress" () {settings = "{request: 0}"}
                                                      host.compute "wait" (%b, %r) {settings = "{request: 0}"}
                                                      host.launch @k(%r, %c, %y)

    A collective starts after the last op that writes its operand or accesses the memory of its result; its wait precedes the
    next one that does. Both buffers are arguments of the wait, so that `plan-arena` reserves their memory until then.
    After each launch, MPI makes progress on pending collectives. All ranks start collectives in the same order, since they have
    the same host program; the ranks compare it before the first call. A call that fails keeps the memory of pending ones.

    Loops and branches run while collectives are pending, unless they contain others. Ops that exchange data with Python or may
    restart the call wait for all pending collectives. Requires `bufferize-host` and `form-sections`.
    """

    name = "overlap-collectives"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        main = entry_of(op)
        collectives = [o for o in main.walk() if isinstance(o, host.ComputeOp) and o.function.data in NONBLOCKING]
        buffers = _Buffers(main)
        requests = count()
        for block in dict.fromkeys(o.parent for o in collectives):
            assert block is not None
            _Scheduler(block, buffers, requests).run()


class _Buffers:
    """The buffers to which the values of a host program may refer; loops exchange them."""

    def __init__(self, main: func.FuncOp) -> None:
        self._accesses: dict[Operation, tuple[set[SSAValue], set[SSAValue]]] = {}
        self._aliases: dict[SSAValue, list[SSAValue]] = {}
        for op in main.walk():
            for k, operand in enumerate(op.operands):
                self._aliases.setdefault(operand, []).extend(aliases(op, k))
        self._buffers: dict[SSAValue, set[SSAValue]] = {}
        derived = {alias for values in self._aliases.values() for alias in values}
        for value in [v for v in self._aliases if v not in derived]:
            self._add(value, value)
        for argument, named in zip(main.args, main.arg_attrs or (), strict=False):
            donor = named.data.get(DONOR)
            if donor is not None:
                self._add(argument, main.args[int(number(donor))])

    def conflict(self, a: Operation, b: Operation) -> bool:
        """Return whether one of two ops writes a buffer that the other accesses."""
        (read, written), (other_read, other_written) = self._accesses_of(a), self._accesses_of(b)
        return not written.isdisjoint(other_read | other_written) or not read.isdisjoint(other_written)

    def _accesses_of(self, op: Operation) -> tuple[set[SSAValue], set[SSAValue]]:
        """Return the buffers that an op reads, or accesses in any way, and those that it writes."""
        if op not in self._accesses:
            ops = list(op.walk())
            accessed, written = (
                {buffer for o in ops for v in values(o) for buffer in self._buffers[v]}
                for values in (accessed_buffers, written_buffers)
            )
            self._accesses[op] = accessed, written
        return self._accesses[op]

    def _add(self, value: SSAValue, buffer: SSAValue) -> None:
        """Record that a value, and its aliases, may refer to a buffer."""
        pending = [value]
        while pending:
            value = pending.pop()
            buffers = self._buffers.setdefault(value, set())
            if buffer not in buffers:
                buffers.add(buffer)
                pending += self._aliases.get(value, ())


@dataclass(eq=False)
class _Collective:
    """A collective that may be split.

    Attributes:
        blockers: The earlier ops that conflict with it, and have not been emitted.
        request: Its number, once it has started.
        launches: The number of launches that were emitted before its start.
    """

    op: host.ComputeOp
    blockers: set[Operation]
    request: int = -1
    launches: int = -1


class _Scheduler:
    """Emits the ops of a block in their order, but collectives as soon as their operands are complete."""

    def __init__(self, block: Block, buffers: _Buffers, requests: Iterator[int]) -> None:
        self.block, self.buffers, self.requests = block, buffers, requests
        self.launches = 0
        self.emitted: dict[Operation, None] = {}
        self.pending: list[_Collective] = []
        self.ops = list(block.ops)
        self.unstarted = [self._collective(k, op) for k, op in enumerate(self.ops) if _may_be_split(op)]

    def _collective(self, position: int, op: Operation) -> _Collective:
        assert isinstance(op, host.ComputeOp)
        earlier = (o for o in self.ops[:position] if not isinstance(o, _BUFFER_OPS))
        return _Collective(op, {o for o in earlier if _is_barrier(o) or self.buffers.conflict(o, op)})

    def run(self) -> None:
        """Reorder the block."""
        self._start_ready()
        for op in self.ops:
            if not _may_be_split(op):
                self._emit(op)
                self._start_ready()
        for op in self.ops:
            op.detach()
        for op in self.emitted:
            self.block.add_op(op)

    def _emit(self, op: Operation) -> None:
        """Emit an op after the definitions of its operands, and after the waits for collectives on its buffers.

        The terminator follows the waits for all collectives of the block.
        """
        if op in self.emitted:
            return
        for value in op.operands:
            if isinstance(value.owner, _BUFFER_OPS) and value.owner.parent is self.block:
                self._emit(value.owner)
        if isinstance(op, _BUFFER_OPS):
            self.emitted[op] = None
            return
        for collective in list(self.pending):
            if op is self.ops[-1] or _is_barrier(op) or self.buffers.conflict(op, collective.op):
                self._wait(collective)
        self.emitted[op] = None
        if isinstance(op, _COMPUTE_OPS | _CONTROL_OPS):
            self.launches += 1
            if self.pending:
                self._make_progress_in(op)
                self.emitted[self._progress()] = None

    def _make_progress_in(self, op: Operation) -> None:
        """Make progress after the launches of a loop or branch."""
        for block in _blocks(op):
            for inner in list(block.ops):
                self._make_progress_in(inner)
                if isinstance(inner, _COMPUTE_OPS):
                    block.insert_op_after(self._progress(), inner)

    def _progress(self) -> host.ComputeOp:
        return _call("progress", self.pending[0].op, self.pending[0].request, [])

    def _start_ready(self) -> None:
        """Start the collectives whose operands are complete."""
        for collective in list(self.unstarted):
            collective.blockers.difference_update(self.emitted)
            if collective.blockers:
                continue
            self.unstarted.remove(collective)
            self._emit(collective.op)
            collective.launches, collective.request = self.launches, next(self.requests)
            self.pending.append(collective)
            self._start_ready()
            return

    def _wait(self, collective: _Collective) -> None:
        """Emit the wait for a collective; one that no launch overlaps stays blocking."""
        self.pending.remove(collective)
        if collective.launches == self.launches:
            return
        self.emitted[_call("wait", collective.op, collective.request, list(collective.op.buffers))] = None
        collective.op.settings = StringAttr(json.dumps({**_settings(collective.op), "request": collective.request}))


def _call(function: str, collective: host.ComputeOp, request: int, buffers: Sequence[SSAValue]) -> host.ComputeOp:
    """Return a call of `wait` or `progress` for a collective that has started."""
    settings = {name: value for name, value in _settings(collective).items() if name in ("axes", "group_size", "label")}
    op = host.ComputeOp(function, json.dumps({**settings, "request": request}), buffers, [], [])
    op.location = collective.location
    return op


def _settings(op: host.ComputeOp) -> dict[str, Any]:
    return json.loads(op.settings.data)


def _may_be_split(op: Operation) -> bool:
    return isinstance(op, host.ComputeOp) and op.function.data in NONBLOCKING and _settings(op)["group_size"] > 1


def _blocks(op: Operation) -> list[Block]:
    """Return the bodies of a loop or branch."""
    return [region.block for region in op.regions] if isinstance(op, _CONTROL_OPS) else []


def _is_barrier(op: Operation) -> bool:
    """Return whether no collective may be pending while an op runs."""
    if _may_be_split(op):
        return False
    return _exchanges_data(op) or any(_exchanges_data(inner) for block in _blocks(op) for inner in block.walk())


def _exchanges_data(op: Operation) -> bool:
    if isinstance(op, host.ComputeOp):
        return op.function.data != _RANK_INDEX
    return not isinstance(op, _COMPUTE_OPS | _CONTROL_OPS | _BUFFER_OPS | host.YieldOp | host.FailOp)
