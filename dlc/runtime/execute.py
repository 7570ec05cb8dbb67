"""The instructions of a host program, executed one after the other by Python, for what has no native executor.

Whoever runs it says what a slot holds: a buffer and an offset, say; and how to launch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dlc.errors import DlcError
from dlc.runtime.control import failure
from dlc.runtime.host_program import (
    NUMBER_BYTES,
    Branch,
    Carried,
    Fail,
    Instruction,
    Launch,
    Loop,
    OpenLaunch,
    Place,
    Print,
    While,
)

# A buffer and an offset in bytes.
Held: TypeAlias = "tuple[Any, int]"


def execute(
    instructions: Sequence[Instruction],
    held: list[Held],
    launch: Callable[[Launch, list[Held]], None],
    read: Callable[[Held, int], bytes],
) -> None:
    """Runs instructions on the slots `held`; `read` gives so many bytes at a place.

    Raises DlcError for a branch that fails.
    """
    for instruction in instructions:
        match instruction:
            case Launch():
                launch(instruction, held)
            case Loop(count=count, carried=carried, elements=elements, body=body):
                _hand_on([(c, c.first) for c in carried], held)
                firsts = [at(held, (slot, int(offset))) for slot, offset in (e.first for e in elements)]
                for step in range(int(count)):
                    for element, (buffer, offset) in zip(elements, firsts, strict=True):
                        held[element.slot] = buffer, offset + step * int(element.step)
                    execute(body, held, launch, read)
                    _hand_on([(c, c.following) for c in carried], held)
            case While(begin=begin, again=again, carried=carried, body=body):
                condition = at(held, begin)
                _hand_on([(c, c.first) for c in carried], held)
                while any(read(condition, 1)):
                    execute(body, held, launch, read)
                    condition = at(held, again)
                    _hand_on([(c, c.following) for c in carried], held)
            case Branch(condition=place, then=then, otherwise=otherwise):
                execute(then if any(read(at(held, place), 1)) else otherwise, held, launch, read)
            case Fail(message=message, numbers=numbers):
                raise DlcError(failure(message, [number(read(at(held, place), NUMBER_BYTES)) for place in numbers]))
            case Print():
                instruction.run(lambda place, count: read(at(held, place), count))
            case OpenLaunch(kernel=kernel):
                raise DlcError(f"a launch of {kernel}, whose sizes come with a call: it is executed with those of one")


def number(bytes: bytes) -> int:
    """A number of a message."""
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
