"""The instructions of a host program, executed one after the other by Python, for what has no native executor.

Whoever runs it says what a slot holds: a buffer and an offset, say; and how to launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dlc.errors import DlcError
from dlc.runtime.host_program import Branch, Carried, Fail, Instruction, Launch, Loop, OpenLaunch, Place, While

# A buffer and an offset in bytes.
Held: TypeAlias = "tuple[Any, int]"


def execute(
    instructions: Sequence[Instruction],
    held: list[Held],
    launch: Callable[[Launch, list[Held]], None],
    is_set: Callable[[Held], bool],
) -> None:
    """Runs instructions on the slots `held`; `is_set` says whether the byte at a place is not 0.

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
                    execute(body, held, launch, is_set)
                    _hand_on([(c, c.following) for c in carried], held)
            case While(begin=begin, again=again, carried=carried, body=body):
                condition = at(held, begin)
                _hand_on([(c, c.first) for c in carried], held)
                while is_set(condition):
                    execute(body, held, launch, is_set)
                    condition = at(held, again)
                    _hand_on([(c, c.following) for c in carried], held)
            case Branch(condition=place, then=then, otherwise=otherwise):
                execute(then if is_set(at(held, place)) else otherwise, held, launch, is_set)
            case Fail(message=message):
                raise DlcError(message)
            case OpenLaunch(kernel=kernel):
                raise DlcError(f"a launch of {kernel}, whose sizes come with a call; only native code binds them")


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
