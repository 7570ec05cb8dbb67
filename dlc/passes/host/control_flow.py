"""Buffers for a program's blocks: dispatches become launches, and loops and branches hand buffers on instead of values."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import cast

from dlc.dialects import host
from dlc.dialects.dl.base import shape_of, tensor_of
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.data_dependent.selection import DecideOp
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, SliceOp
from dlc.dialects.dl.narrow_numbers.words import WordsOp
from dlc.dialects.dl.programs.control import FailOp, IfOp, Loop, PrintOp, ScanOp, WhileOp
from dlc.dialects.dl.programs.identities import AfterOp
from dlc.dialects.dl.programs.program import DispatchOp, YieldOp, written_over
from dlc.dims import Size, is_symbol, product, row_major
from dlc.ir import Attribute, Block, MemRefType, Operation, SSAValue, StridedLayoutAttr, f32, memref
from dlc.passes.views import is_last_state, pieces_of, source_of


def buffer_type(value: SSAValue) -> MemRefType[Attribute]:
    """The buffer of a tensor."""
    t = tensor_of(value)
    return _buffer_type(t.element_type, t.get_shape())


@lru_cache(maxsize=1024)
def _buffer_type(element_type: Attribute, shape: tuple[int, ...]) -> MemRefType[Attribute]:
    return MemRefType(element_type, shape)


@cache
def _of_known_size() -> Mapping[str, Attribute]:
    """The properties of an allocation whose sizes are in its type."""
    return memref.AllocOp([], [], MemRefType(f32, ())).properties


def is_written(value: SSAValue) -> bool:
    """Whether what makes a value writes it where it is told to."""
    return isinstance(value.owner, DispatchOp | IfOp | ScanOp) and not is_last_state(value)


def is_changed(state: SSAValue, following: SSAValue) -> bool:
    """Whether a kernel makes the next state of the current one where that is."""
    op = following.owner
    if not isinstance(op, DispatchOp):
        return False
    argument = written_over(op).get(op.outputs.index(following))
    return argument is not None and source_of(op.arguments[argument])[0] is state


class Bufferizer:
    """Converts blocks on tensors to `block`, on buffers.

    `buffers` has those of values that were met; `destinations` says where a value that is yet to be made has to be, `pieces` of
    what it is to be a piece, and where that begins. Of values that are `parted` others read parts, which begin where kernels
    expect it unless the whole is one of `elements`, the buffers that are elements of sequences. In a program that `is_open`,
    sizes come with a call: buffers say theirs, and `sizes` knows what they said.
    """

    def __init__(self, is_open: bool, parted: Collection[SSAValue]) -> None:
        self.is_open, self.parted = is_open, parted
        self.elements: set[SSAValue] = set()
        # Names of sizes: those of inputs, then what is decided on the way.
        self.known: set[str] = set()
        self.sizes: dict[SSAValue, tuple[Size, ...]] = {}
        self.block = Block()
        self.buffers: dict[SSAValue, SSAValue] = {}
        self.destinations: dict[SSAValue, SSAValue] = {}
        self.pieces: dict[SSAValue, tuple[ConcatOp, int]] = {}

    def convert(self, source: Block) -> None:
        """Appends what the ops of a block become, but for its terminator."""
        for op in source.ops:
            if isinstance(op, ConcatOp):
                self.direct_pieces(op)
        for op in source.ops:
            match op:
                case WeightOp():
                    weight = host.WeightOp(op.symbol.string_value(), buffer_type(op.result))
                    self.buffers[op.result] = self.value(weight, op, op.result)
                case ReshapeOp() | WordsOp() | AfterOp() | SliceOp():
                    self.buffers[op.result] = self.part(op.result, op)
                case ConcatOp():
                    self.join(op)
                case DispatchOp():
                    results = [self.place(r, op) for r in op.outputs]
                    self.add(host.LaunchOp(op.symbol, [*(self.buffers[v] for v in op.arguments), *results], op.sizes), op)
                case IfOp():
                    self.branch(op)
                case ScanOp():
                    self.scan(op)
                case WhileOp():
                    self.loop(op)
                case DecideOp():
                    self.add(host.DecideOp(self.part(op.count, op), op.size), op)
                case PrintOp():
                    self.add(host.PrintOp(op.pieces, [self.part(v, op) for v in op.arguments]), op)
                case DataDependent():
                    self.compute(op)
                case _:
                    pass

    def direct_pieces(self, op: ConcatOp) -> None:
        """Says of results of kernels that are joined where they are to be written."""
        for value, offset in pieces_of(op):
            root, _ = source_of(value)
            fits = isinstance(root.owner, DispatchOp) and root.owner.parent is op.parent and elements(root) == elements(value)
            if fits and root not in self.destinations and root not in self.pieces:
                self.pieces[root] = op, offset

    def join(self, op: ConcatOp) -> None:
        """Copies what is not written where it is joined."""
        whole = self.joined(op, op)
        for value, offset in pieces_of(op):
            root, _ = source_of(value)
            if self.pieces.get(root) != (op, offset):
                self.add(memref.CopyOp(self.part(value, op), self.view(whole, value, op, offset)), op)

    def joined(self, join: ConcatOp, origin: Operation) -> SSAValue:
        """The buffer of what is joined, which is there before the first piece is made."""
        return self.buffers[join.result] if join.result in self.buffers else self.place(join.result, origin)

    def compute(self, op: DataDependent) -> None:
        """What Python computes, and what sizes it decides."""
        results = [self.place(r, op) for r in op.results]
        decided = [str(size) for size in op.decided if is_symbol(size) and str(size) not in self.known]
        self.known.update(decided)
        arguments = [self.part(v, op) for v in op.operands]
        self.add(host.ComputeOp(op.selection, json.dumps(op.settings), arguments, results, decided), op)

    def branch(self, op: IfOp) -> None:
        """Both bodies write their results to the same buffers."""
        places = [self.place(r, op) for r in op.results]
        blocks: list[Block] = []
        for source in op.blocks:
            outer, self.block = self.block, Block()
            if isinstance(source.last_op, FailOp):
                self.convert(source)
                numbers = [self.part(v, op) for v in source.last_op.numbers]
                self.add(host.FailOp(source.last_op.message.data, numbers), source.last_op)
            else:
                pairs = zip(yielded_by(source), places, strict=True)
                copies = [(value, place) for value, place in pairs if not self.directed(value, place, source)]
                self.convert(source)
                self.copy(copies, op)
                self.add(host.YieldOp([]), op)
            blocks.append(self.block)
            self.block = outer
        self.add(host.IfOp(self.buffers[op.condition], *blocks), op)

    def scan(self, op: ScanOp) -> None:
        """Elements of sequences, and of results, are parts of their buffers."""
        count = op.state_count
        made = [self.place(r, op) for r in op.results[count:]]
        yielded = yielded_by(op.block)
        firsts = self.firsts(op, op.arguments[:count], yielded[:count])
        block, free = self.body(op, yielded[:count], op.block.args[count:], yielded[count:], None)
        carried = [*firsts, *free]
        elements = [*(self.buffers[v] for v in op.arguments[count:]), *made]
        self.ended(op, host.LoopOp(op.steps, carried, elements, block, op.goes_back))

    def loop(self, op: WhileOp) -> None:
        again, *states = yielded_by(op.block)
        firsts = self.firsts(op, op.arguments, states)
        block, free = self.body(op, states, (), (), again)
        self.ended(op, host.WhileOp(self.buffers[op.condition], [*firsts, *free], block))

    def firsts(self, op: Loop, arguments: Sequence[SSAValue], following: Sequence[SSAValue]) -> list[SSAValue]:
        """The buffers of the first states; of one that is changed where it is, a copy."""
        firsts: list[SSAValue] = []
        for first, state, value in zip(arguments, op.block.args, following, strict=False):
            buffer = self.buffers[first]
            if is_changed(state, value):
                own = self.new(state, op)
                self.add(memref.CopyOp(buffer, own), op)
                buffer = own
            firsts.append(buffer)
        return firsts

    def ended(self, op: Loop, loop: host.LoopOp | host.WhileOp) -> None:
        """Appends a loop; the last states are what its carried buffers are in the end."""
        self.add(loop, op)
        for value, buffer in zip(op.results, loop.results, strict=False):
            self.sizes[buffer] = shape_of(value)
            if value not in self.buffers:
                self.buffers[value] = buffer
                buffer.name_hint = value.name_hint

    def body(
        self,
        op: Loop,
        states: Sequence[SSAValue],
        elements: Sequence[SSAValue],
        made: Sequence[SSAValue],
        again: SSAValue | None,
    ) -> tuple[Block, list[SSAValue]]:
        """A loop's body on buffers, and the buffers that its carried arguments behind the states are at first.

        Its arguments are the states, two buffers for each state that needs them, the elements that it reads, and those that
        it makes. The next state is written to the first of the two while the current one is in the second; then they take
        turns. A state that is an element as well, that nothing in the body writes, or that a kernel changes, is found where it
        is.
        """
        source = op.block
        own = source.args[: len(states)]
        block = Block(arg_types=[buffer_type(v) for v in (*own, *elements, *made)])
        self.sizes |= {a: shape_of(v) for v, a in zip((*own, *elements, *made), block.args, strict=True)}
        places = block.args[len(own) + len(elements) :]
        self.elements.update(places)
        for value, argument in zip((*own, *elements), block.args, strict=False):
            self.buffers[value] = argument
            argument.name_hint = value.name_hint
        self.destinations |= {v: self.buffers[state] for v, state in zip(states, own, strict=True) if is_changed(state, v)}
        copies = [(v, place) for v, place in zip(made, places, strict=True) if not self.directed(v, place, source)]
        first: list[SSAValue] = []
        following: list[tuple[SSAValue, SSAValue | None]] = []
        for value, state in zip(states, own, strict=True):
            if value is state or value in elements or is_changed(state, value) or self.is_found(value, source, places):
                following.append((value, None))
                continue
            free, _ = (block.insert_arg(buffer_type(state), len(own) + len(first) + k) for k in range(2))
            self.sizes[free] = shape_of(state)
            first += [self.new(state, op) for _ in range(2)]
            written = self.directed(value, free, source)
            following.append((value, None if written else free))
            copies += [] if written else [(value, free)]
        turns = block.args[len(own) : len(own) + len(first)]
        outer, self.block = self.block, block
        self.convert(source)
        self.copy(copies, op)
        handed = [self.part(value, op) if place is None else place for value, place in following]
        turned = [turns[k ^ 1] for k in range(len(turns))]
        condition = [] if again is None else [self.part(again, op)]
        self.add(host.YieldOp([*condition, *handed, *turned]), op)
        self.block = outer
        return block, first

    def is_found(self, value: SSAValue, body: Block, places: Sequence[SSAValue]) -> bool:
        """Whether a next state lies where no later step writes: outside of the body, or as an element of a result."""
        root, _ = source_of(value)
        if self.destinations.get(root) in places:
            return True
        home = root.owner if isinstance(root.owner, Block) else root.owner.parent
        return home is not body

    def directed(self, value: SSAValue, place: SSAValue, body: Block) -> bool:
        """Whether what makes a value in a body will write it to `place`, which nothing else is written to."""
        root, _ = source_of(value)
        inside = isinstance(root.owner, Operation) and root.owner.parent is body
        if not inside or not is_written(root) or root in self.destinations or elements(root) != elements(value):
            return False
        if root in self.parted and place in self.elements:
            return False
        self.destinations[root] = place
        return True

    def copy(self, pairs: Sequence[tuple[SSAValue, SSAValue]], origin: Operation) -> None:
        """Copies values to buffers."""
        for value, place in pairs:
            self.add(memref.CopyOp(self.part(value, origin), place), origin)

    def place(self, result: SSAValue, origin: Operation) -> SSAValue:
        """The buffer of a result: where it has to be, or a new one."""
        if result in self.destinations:
            place = self.destinations[result]
            self.buffers[result] = self.view(place, result, origin)
            if place in self.elements:
                self.elements.add(self.buffers[result])
        elif result in self.pieces:
            join, offset = self.pieces[result]
            self.buffers[result] = self.view(self.joined(join, origin), result, origin, offset)
        else:
            self.buffers[result] = self.new(result, origin)
        return self.buffers[result]

    def new(self, like: SSAValue, origin: Operation) -> SSAValue:
        """A buffer for a value."""
        t = buffer_type(like)
        if self.is_open:
            return self.value(host.BufferOp(shape_of(like), t), origin, like)
        return self.value(memref.AllocOp.create(result_types=[t], properties=_of_known_size()), origin, like)

    def part(self, value: SSAValue, origin: Operation) -> SSAValue:
        """The part of a buffer that a value is."""
        root, offset = source_of(value)
        return self.view(self.buffers[root], value, origin, offset)

    def view(self, buffer: SSAValue, like: SSAValue, origin: Operation, offset: int = 0) -> SSAValue:
        """What of `buffer` begins at an element, in the shape of `like`, and in elements of its type."""
        t = buffer_type(like)
        if buffer.type == t and self.sizes.get(buffer, shape_of(like)) == shape_of(like):
            return buffer
        if self.is_open or cast("MemRefType[Attribute]", buffer.type).element_type != t.element_type:
            return self.value(host.ViewOp(buffer, offset, shape_of(like), t), origin, like)
        if isinstance(buffer.owner, memref.ReinterpretCastOp):
            # Counted from the start of the allocation, wherever in it the piece begins.
            buffer, offset = buffer.owner.source, offset + buffer.owner.static_offsets.get_values()[0]
        strides = cast("tuple[int, ...]", row_major(t.get_shape()))
        if offset:
            t = MemRefType(t.element_type, t.get_shape(), StridedLayoutAttr(strides, offset))
        op = memref.ReinterpretCastOp(buffer, [], [], [], [offset], t.get_shape(), strides, t)
        return self.value(op, origin, like)

    def add(self, op: Operation, origin: Operation) -> None:
        """Appends `op` with the location of what it comes from."""
        op.location = origin.location
        self.block.add_op(op)

    def value(self, op: Operation, origin: Operation, like: SSAValue) -> SSAValue:
        """Appends `op` and returns its result, which is called like another value."""
        self.add(op, origin)
        self.sizes[op.results[0]] = shape_of(like)
        op.results[0].name_hint = like.name_hint
        return op.results[0]


def yielded_by(block: Block) -> Sequence[SSAValue]:
    """What a body gives."""
    last = block.last_op
    assert isinstance(last, YieldOp)
    return last.values


def elements(value: SSAValue) -> Size:
    """How many elements a value has."""
    return product(shape_of(value))
