"""The instructions of a host program as JSON, and back: what is read is not trusted to be any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from dlc.runtime.host_program import Branch, Carried, Element, Fail, Instruction, Launch, Loop, Place, While

# Bodies in bodies; a reader that calls itself for each must end before Python's stack does.
_DEEPEST = 64


def to_json(instructions: Sequence[Instruction]) -> list[Any]:
    """A launch is a list, other instructions are objects."""
    return [_written(instruction) for instruction in instructions]


def _written(instruction: Instruction) -> Any:
    match instruction:
        case Launch(kernel=kernel, arguments=arguments, sizes=sizes):
            return [kernel, arguments, sizes]
        case Loop(count=count, carried=carried, elements=elements, body=body):
            moved = [[e.slot, e.first, e.step] for e in elements]
            return {"loop": count, "carried": _carried(carried), "elements": moved, "body": to_json(body)}
        case While(begin=begin, again=again, carried=carried, body=body):
            return {"while": begin, "again": again, "carried": _carried(carried), "body": to_json(body)}
        case Branch(condition=condition, then=then, otherwise=otherwise):
            return {"if": condition, "then": to_json(then), "else": to_json(otherwise)}
        case Fail(message=message):
            return {"fail": message}


def _carried(carried: Sequence[Carried]) -> list[Any]:
    return [[c.slot, c.first, c.following] for c in carried]


def from_json(written: Any, depth: int = 0) -> tuple[Instruction, ...]:
    """The instructions; raises ValueError, TypeError or KeyError for what are none."""
    if depth > _DEEPEST:
        raise ValueError(f"bodies in bodies, more than {_DEEPEST} deep")
    return tuple(_read(one, depth + 1) for one in written)


def _read(written: Any, depth: int) -> Instruction:
    if isinstance(written, list):
        kernel, arguments, sizes = cast("list[Any]", written)
        if kernel is not None:
            text(kernel)
        numbers = () if kernel is not None else tuple(map(count, sizes[:1]))
        return Launch(kernel, tuple(map(place, arguments)), tuple(map(count, sizes)), numbers)
    if "loop" in written:
        elements = tuple(Element(count(slot), place(first), _distance(step)) for slot, first, step in written["elements"])
        return Loop(count(written["loop"]), _read_carried(written), elements, from_json(written["body"], depth))
    if "while" in written:
        begin, again = place(written["while"]), place(written["again"])
        return While(begin, again, _read_carried(written), from_json(written["body"], depth))
    if "if" in written:
        then, otherwise = (from_json(written[key], depth) for key in ("then", "else"))
        return Branch(place(written["if"]), then, otherwise)
    return Fail(text(written["fail"]))


def _read_carried(written: Any) -> tuple[Carried, ...]:
    return tuple(Carried(count(slot), place(first), place(following)) for slot, first, following in written["carried"])


def place(written: Any) -> Place:
    """A slot and an offset; raises ValueError or TypeError for what is none."""
    slot, offset = written
    return count(slot), count(offset)


def count(value: Any) -> int:
    """A number of things; raises ValueError for anything else."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is no count")
    return value


def _distance(value: Any) -> int:
    """A number of bytes, forward or back; raises ValueError for anything else."""
    if type(value) is not int or not -(1 << 63) < value < 1 << 63:
        raise ValueError(f"{value!r} is no distance")
    return value


def text(value: Any) -> str:
    """A text; raises ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
