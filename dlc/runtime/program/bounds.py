"""Verify that a program accesses its buffers in bounds, for programs from untrusted files.

This is an abstract interpretation. The state of a slot is a set of addresses in buffers: at run time the slot holds no address
before the first or after the last of them in a buffer. The address in a loop slot is linear in the iteration, so its first and
last values suffice.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

from dlc.errors import ModelError
from dlc.runtime.program.host_program import (
    I64_BYTES,
    Branch,
    BufferRef,
    CarriedSlot,
    Fail,
    HostArray,
    HostProgram,
    Instruction,
    Launch,
    Loop,
    LoopSlot,
    Parallel,
    PrintArrays,
    PythonCall,
    SetSize,
    While,
    walk,
)
from dlc.shapes.dims import Size, is_nonnegative, is_static, is_symbol, substitute

# Nested loops are iterated to a fixed point, and each loop that may have no iterations adds an address. Real programs stay far
# below these limits; malicious ones are rejected.
_MAX_CHECKS = 300_000
_MAX_CHECKS_PER_INSTRUCTION = 1_000


class ByteRange(NamedTuple):
    """Bytes `start` to `end` of a buffer, accessed only if each of `loops` (dynamic iteration counts) is at least 1."""

    buffer: int
    start: Size
    end: Size
    loops: frozenset[Size]

    def fits(self, members: Iterable[Size]) -> bool:
        """Return whether the range is provably inside a buffer that is as large as the largest of `members`."""
        at_least_one: dict[str, Size] = {str(count): count + 1 for count in self.loops if is_symbol(count)}

        def is_proved(size: Size) -> bool:
            return is_nonnegative(substitute(size, at_least_one))

        return is_proved(self.start) and any(is_proved(member - self.end) for member in members)


@dataclass(frozen=True)
class RangeGroup:
    """Ranges in one buffer that are accessed in the same loops.

    Attributes:
        buffer_sizes: The sizes of which the buffer has the largest.
        loops: The iteration counts of the loops.
        starts, ends: The starts and the possibly largest ends of the ranges.
    """

    buffer_sizes: list[Size]
    loops: list[Size]
    starts: list[Size]
    ends: list[Size]


@dataclass(frozen=True)
class BoundsChecks:
    """Checks of a call that cannot be proved from the polynomials.

    `counts` must not be negative. The ranges of `groups` must be inside of their buffers unless one of their loops has no
    iteration. A program without symbols needs no checks.
    """

    counts: tuple[Size, ...]
    groups: tuple[RangeGroup, ...]

    @staticmethod
    def of(program: HostProgram) -> BoundsChecks:
        """Verify a program as far as possible, and return the remaining checks.

        What a kernel does within its arguments is not checked. Raises ModelError for a program that is invalid for all sizes.
        """
        _require_valid_donors(program)
        buffers = program.buffers
        unproved: dict[tuple[int, frozenset[Size]], list[ByteRange]] = {}
        for access in accessed_ranges(program.instructions, buffers, program.slots):
            if access.fits(buffers[access.buffer]):
                continue
            if not access.loops and is_static((access.start, access.end, *buffers[access.buffer])):
                raise ModelError(f"bytes {access.start} to {access.end} of slot {access.buffer} are outside of the buffer")
            unproved.setdefault((access.buffer, access.loops), []).append(access)
        sizes = chain(_sizes_of(program.instructions), *(info.shape for info in program.outputs), *program.regions)
        counts = tuple(dict.fromkeys(size for size in sizes if not is_nonnegative(size)))
        if negative := [size for size in counts if isinstance(size, int)]:
            raise ModelError(f"a negative size: {negative[0]}")
        groups = (
            RangeGroup(
                candidates_for_max(buffers[buffer]),
                list(loops),
                list(dict.fromkeys(access.start for access in group)),
                candidates_for_max(access.end for access in group),
            )
            for (buffer, loops), group in unproved.items()
        )
        return BoundsChecks(counts, tuple(groups))


def _require_valid_donors(program: HostProgram) -> None:
    for output, donor in program.donors.items():
        pair = [infos[k] for infos, k in ((program.outputs, output), (program.inputs, donor)) if k < len(infos)]
        if len(pair) < 2 or (pair[0].shape, pair[0].dtype) != (pair[1].shape, pair[1].dtype):
            raise ModelError(f"output {output} cannot overwrite input {donor}: their types differ")
    if len(set(program.donors.values())) < len(program.donors):
        raise ModelError("an input cannot be donated to two outputs")


def _sizes_of(instructions: Sequence[Instruction]) -> Iterator[Size]:
    """Yield sizes that must not be negative: bytes of launch arguments, and iteration counts."""
    for instruction, _ in walk(instructions):
        match instruction:
            case Launch(sizes=sizes):
                yield from sizes
            case Loop(count=count):
                yield count
            case _:
                pass


def candidates_for_max(sizes: Iterable[Size]) -> list[Size]:
    """Return the sizes that may be the largest: symbolic ones once each, and the largest static one."""
    distinct = dict.fromkeys(sizes)
    static = [size for size in distinct if isinstance(size, int)]
    return [*(size for size in distinct if not isinstance(size, int)), *([max(static)] if static else [])]


def accessed_ranges(instructions: Sequence[Instruction], buffers: Collection[int], slots: int) -> Collection[ByteRange]:
    """Return the ranges of buffers that instructions access, each once; `buffers` are slots that hold buffers.

    Raises ModelError for instructions that assign a buffer's slot, or use a slot that holds no address.
    """
    loop_slots = [s.slot for i, _ in walk(instructions) for s in _slots_set_by(i)]
    last = max(buffers, default=0)
    if invalid := [slot for slot in loop_slots if not last < slot < slots]:
        raise ModelError(f"a loop sets slot {invalid[0]}, which is not a loop slot")
    if slots - 1 - last > len(loop_slots):
        raise ModelError(f"{slots} slots, of which loops set {len(loop_slots)}")
    # Otherwise an inner loop could move a slot that the outer loop depends on.
    if len(set(loop_slots)) < len(loop_slots):
        raise ModelError("a slot that two loops set")
    walker = _BoundsChecker(_MAX_CHECKS + _MAX_CHECKS_PER_INSTRUCTION * sum(1 for _ in walk(instructions)))
    walker.block(instructions, ChainMap({slot: frozenset({_SlotAddress(slot, 0)}) for slot in buffers}))
    return walker.ranges.keys()


def _slots_set_by(instruction: Instruction) -> Sequence[CarriedSlot | LoopSlot]:
    match instruction:
        case Loop(carried=carried, elements=elements):
            return (*carried, *elements)
        case While(carried=carried):
            return carried
        case _:
            return ()


class _SlotAddress(NamedTuple):
    """An offset in a buffer that a slot may hold if each of `loops` has an iteration."""

    buffer: int
    offset: Size
    loops: frozenset[Size] = frozenset()


_SlotAddresses: TypeAlias = "frozenset[_SlotAddress]"
# The addresses of each slot; bodies of loops and branches have scopes of their own.
_SlotState: TypeAlias = "ChainMap[int, _SlotAddresses]"


class _BoundsChecker:
    def __init__(self, max_checks: int) -> None:
        self.ranges: dict[ByteRange, None] = {}
        self.loops = frozenset[Size]()  # The trip counts of the loops around the current instruction.
        self.remaining_checks = max_checks
        # The addresses that carried slots have reached, in all iterations of outer loops so far.
        self.reached: dict[int, _SlotAddresses] = {}

    def block(self, instructions: Sequence[Instruction], state: _SlotState) -> None:
        """Process instructions, starting from the slots in `state`, and update `state` to the slots afterwards."""
        for instruction in instructions:
            self.spend(1)
            match instruction:
                case Launch():
                    for ref, size in zip(instruction.arguments, instruction.sizes, strict=True):
                        self.access(ref, size, state)
                case Loop():
                    self.loop(instruction, state)
                case While():
                    self.access(instruction.begin, 1, state)
                    self.repeated(instruction, state, {})
                case Branch():
                    self.access(instruction.condition, 1, state)
                    # A slot is set by one loop only, so the bodies do not affect slots outside of them.
                    self.block(instruction.then, state.new_child())
                    self.block(instruction.otherwise, state.new_child())
                case Parallel():
                    self.block(instruction.launches, state)
                case PrintArrays(values=values):
                    self.arrays(values, state)
                case PythonCall(arguments=arguments, results=results):
                    self.arrays((*arguments, *results), state)
                case SetSize(ref=ref):
                    self.access(ref, I64_BYTES, state)
                case Fail(values=refs):
                    for ref in refs:
                        self.access(ref, I64_BYTES, state)

    def loop(self, loop: Loop, state: _SlotState) -> None:
        if loop.count == 0:
            state.update({c.slot: self.addresses(c.first, state) for c in loop.carried})
            return
        outer_loops, iteration_counts = self.loops, frozenset[Size](() if isinstance(loop.count, int) else (loop.count,))
        elements: dict[int, _SlotAddresses] = {}
        for element in loop.elements:
            first = frozenset(p._replace(loops=p.loops | iteration_counts) for p in self.addresses(element.first, state))
            elements[element.slot] = first | _shifted(first, element.step * (loop.count - 1))
        self.loops = outer_loops | iteration_counts
        self.repeated(loop, state, elements)
        self.loops = outer_loops

    def repeated(self, loop: Loop | While, state: _SlotState, elements: Mapping[int, _SlotAddresses]) -> None:
        """Process a loop body until the addresses of carried slots reach a fixed point.

        In each round of an outer loop, slots have more addresses, and so have those of an inner loop at its fixed point: it is
        continued from the previous one.
        """
        initial = [(c.slot, self.addresses(c.first, state)) for c in loop.carried]
        state.update({slot: addresses | self.reached.get(slot, frozenset()) for slot, addresses in initial})
        # Each round propagates addresses to one more carried slot.
        for _ in range(len(loop.carried) + 2):
            body_state = state.new_child(dict(elements))
            self.block(loop.body, body_state)
            if isinstance(loop, While):
                self.access(loop.again, 1, body_state)
            next_state = {c.slot: state[c.slot] | self.addresses(c.following, body_state) for c in loop.carried}
            if all(state[slot] == addresses for slot, addresses in next_state.items()):
                self.reached |= next_state
                if isinstance(loop, Loop) and isinstance(loop.count, int) and loop.count > 0:
                    # The loop has at least one iteration: initial addresses remain only if they are carried through.
                    state.update({c.slot: self.addresses(c.following, body_state) for c in loop.carried})
                return
            state.update(next_state)
        raise ModelError("the carried slots of a loop do not reach a fixed point")

    def arrays(self, arrays: Sequence[HostArray], state: _SlotState) -> None:
        for array in arrays:
            self.access(array.ref, array.bytes, state)

    def access(self, ref: BufferRef, size: Size, state: _SlotState) -> None:
        """Record an access to `size` bytes from a buffer reference on."""
        slot, offset = ref
        for p in self.slot_addresses(slot, state):
            start = p.offset + offset
            self.ranges[ByteRange(p.buffer, start, start + size, p.loops | self.loops)] = None

    def addresses(self, ref: tuple[int, Size], state: Mapping[int, _SlotAddresses]) -> _SlotAddresses:
        slot, offset = ref
        return _shifted(self.slot_addresses(slot, state), offset)

    def slot_addresses(self, slot: int, state: Mapping[int, _SlotAddresses]) -> _SlotAddresses:
        addresses = state.get(slot)
        if addresses is None:
            raise ModelError(f"slot {slot} holds no address")
        self.spend(len(addresses))
        return addresses

    def spend(self, checks: int) -> None:
        self.remaining_checks -= checks
        if self.remaining_checks < 0:
            raise ModelError("nested loops are too complex to be checked")


def _shifted(addresses: _SlotAddresses, distance: Size) -> _SlotAddresses:
    return addresses if distance == 0 else frozenset(p._replace(offset=p.offset + distance) for p in addresses)
