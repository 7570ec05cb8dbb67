"""The instructions of a host program, executed one after the other by Python, for what has no native executor.

Whoever runs it says what a slot holds: a buffer and an offset, say; and how to launch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from dlc.errors import DlcError
from dlc.runtime.program.computing import computed
from dlc.runtime.program.host_program import (
    NUMBER_BYTES,
    Branch,
    Carried,
    Compute,
    Decide,
    Fail,
    Instruction,
    Launch,
    Loop,
    OpenLaunch,
    Place,
    Print,
    Printing,
    While,
)
from dlc.runtime.python_ops.control import failure

# A buffer and an offset in bytes.
Held: TypeAlias = "tuple[Any, int]"


def execute(
    block: Callable[[], Sequence[Instruction]],
    held: list[Held],
    launch: Callable[[Launch, list[Held]], None],
    read: Callable[[Held, int], bytes],
    write: Callable[[Held, bytes], None],
    decide: Callable[[str, int], None],
    printing: Printing,
) -> None:
    """Runs the instructions of a block on the slots `held`; `read` gives so many bytes at a place, `write` puts some there.

    `decide` is told of each size that data decides; instructions that follow are those that `block` gives then.
    Raises DlcError for a branch that fails.
    """

    def read_at(place: Place, count: int) -> bytes:
        return read(at(held, place), count)

    def inside(k: int, bodies: Callable[[Any], Sequence[Instruction]]) -> None:
        execute(lambda: bodies(block()[k]), held, launch, read, write, decide, printing)

    instructions = block()
    for k in range(len(instructions)):
        instruction = instructions[k]
        if isinstance(instruction, Launch):
            launch(instruction, held)
            continue
        match instruction:
            case Loop(count=count, carried=carried, elements=elements):
                _hand_on([(c, c.first) for c in carried], held)
                firsts = [at(held, (slot, int(offset))) for slot, offset in (e.first for e in elements)]
                for step in range(int(count)):
                    for element, (buffer, offset) in zip(elements, firsts, strict=True):
                        held[element.slot] = buffer, offset + step * int(element.step)
                    inside(k, _body)
                    _hand_on([(c, c.following) for c in _carried(block()[k])], held)
            case While(begin=begin, carried=carried):
                condition = at(held, begin)
                _hand_on([(c, c.first) for c in carried], held)
                while any(read(condition, 1)):
                    inside(k, _body)
                    condition = at(held, cast(While, block()[k]).again)
                    _hand_on([(c, c.following) for c in _carried(block()[k])], held)
            case Branch(condition=place):
                inside(k, _then if any(read(at(held, place), 1)) else _otherwise)
            case Fail(message=message, numbers=numbers):
                raise DlcError(failure(message, [number(read_at(place, NUMBER_BYTES)) for place in numbers]))
            case Decide(symbol=symbol, place=place):
                decide(symbol, number(read_at(place, NUMBER_BYTES)))
            case Print():
                printing.show(instruction, read_at, {})
            case Compute():
                results, decided = computed(instruction, read_at, {})
                for symbol, size in decided.items():
                    decide(symbol, size)
                for array, result in zip(cast(Compute, block()[k]).results, results, strict=True):
                    write(at(held, array.place), result.tobytes())
            case OpenLaunch(kernel=kernel):
                raise DlcError(f"a launch of {kernel}, whose sizes come with a call: it is executed with those of one")
        # It may have decided a size.
        instructions = block()


def _body(of: Loop | While) -> Sequence[Instruction]:
    return of.body


def _then(of: Branch) -> Sequence[Instruction]:
    return of.then


def _otherwise(of: Branch) -> Sequence[Instruction]:
    return of.otherwise


def _carried(of: Instruction) -> Sequence[Carried]:
    return cast("Loop | While", of).carried


def number(bytes: bytes) -> int:
    """A number of a message, or one that is a size."""
    return int.from_bytes(bytes, sys.byteorder, signed=True)


def at(held: Sequence[Held], place: Place) -> Held:
    """What a place means."""
    slot, offset = place
    buffer, start = held[slot]
    return buffer, start + offset


def _hand_on(carried: Sequence[tuple[Carried, Place]], held: list[Held]) -> None:
    """Sets slots to places, all at once."""
    places = [at(held, place) for _, place in carried]
    for (slot, _), place in zip(carried, places, strict=True):
        held[slot.slot] = place
