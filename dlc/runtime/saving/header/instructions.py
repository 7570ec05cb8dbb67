"""The instructions of a host program as JSON, and back: what is read is not trusted to be any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, cast

from dlc.arrays import named_dtype
from dlc.dims import Size
from dlc.runtime.program.host_program import (
    Branch,
    Carried,
    Compute,
    Decide,
    Element,
    Fail,
    HostArray,
    Instruction,
    Launch,
    Loop,
    OpenLaunch,
    Place,
    Print,
    While,
)
from dlc.runtime.python_ops.selection import SELECTIONS, Setting
from dlc.runtime.saving.header.values import count, distance, place, plain, read_size, text

# Bodies in bodies; a reader that calls itself for each must end before Python's stack does.
_DEEPEST = 64


def to_json(instructions: Sequence[Instruction]) -> list[Any]:
    """A launch is a list, other instructions are objects."""
    return [_written(instruction) for instruction in instructions]


def _written(instruction: Instruction) -> Any:
    match instruction:
        case Launch(kernel=kernel, arguments=arguments, sizes=sizes):
            return [kernel, arguments, sizes]
        case OpenLaunch(kernel=kernel, arguments=arguments, numbers=numbers):
            return [kernel, arguments, list(map(plain, numbers))]
        case Loop(count=count, carried=carried, elements=elements, body=body):
            moved = [[e.slot, [e.first[0], plain(e.first[1])], plain(e.step)] for e in elements]
            return {"loop": plain(count), "carried": _carried(carried), "elements": moved, "body": to_json(body)}
        case While(begin=begin, again=again, carried=carried, body=body):
            return {"while": begin, "again": again, "carried": _carried(carried), "body": to_json(body)}
        case Branch(condition=condition, then=then, otherwise=otherwise):
            return {"if": condition, "then": to_json(then), "else": to_json(otherwise)}
        case Fail(message=message, numbers=numbers):
            return {"fail": message, "numbers": numbers}
        case Decide(symbol=symbol, place=place):
            return {"decide": symbol, "at": place}
        case Print(pieces=pieces, values=values):
            return {"print": pieces, "values": _arrays(values)}
        case Compute(op=op, settings=settings, where=where, arguments=arguments, results=results, decided=decided):
            arrays = {"takes": _arrays(arguments), "makes": _arrays(results), "decides": decided}
            return {"compute": op, "settings": settings, "where": where, **arrays}


def _arrays(arrays: Sequence[HostArray]) -> list[Any]:
    return [[array.place, list(map(plain, array.shape)), array.dtype.name] for array in arrays]


def _carried(carried: Sequence[Carried]) -> list[Any]:
    return [[c.slot, c.first, c.following] for c in carried]


def from_json(written: Any, is_open: bool = False) -> tuple[Instruction, ...]:
    """The instructions, of a program whose sizes come with a call if it `is_open`.

    Raises ValueError, TypeError or KeyError for what are none.
    """
    return _Reader(is_open).block(written, 0)


class _Reader:
    def __init__(self, is_open: bool) -> None:
        self.is_open = is_open

    def block(self, written: Any, depth: int) -> tuple[Instruction, ...]:
        if depth > _DEEPEST:
            raise ValueError(f"bodies in bodies, more than {_DEEPEST} deep")
        return tuple(self.instruction(one, depth + 1) for one in written)

    def instruction(self, written: Any, depth: int) -> Instruction:
        if isinstance(written, list):
            return self.launch(*cast("list[Any]", written))
        if "loop" in written:
            elements = tuple(self.element(*one) for one in written["elements"])
            return Loop(self.size(written["loop"]), _read_carried(written), elements, self.block(written["body"], depth))
        if "while" in written:
            begin, again = place(written["while"]), place(written["again"])
            return While(begin, again, _read_carried(written), self.block(written["body"], depth))
        if "if" in written:
            then, otherwise = (self.block(written[key], depth) for key in ("then", "else"))
            return Branch(place(written["if"]), then, otherwise)
        if "decide" in written and self.is_open:
            return Decide(text(written["decide"]), place(written["at"]))
        if "print" in written:
            return self.printed(written)
        if "compute" in written:
            return self.computed(written)
        return Fail(text(written["fail"]), _read_numbers(written))

    def launch(self, kernel: Any, arguments: Any, sizes: Any) -> Launch | OpenLaunch:
        if kernel is not None:
            text(kernel)
        places = tuple(map(place, arguments))
        if self.is_open:
            return OpenLaunch(kernel, places, tuple(map(read_size, sizes)))
        numbers = () if kernel is not None else tuple(map(count, sizes[:1]))
        return Launch(kernel, places, tuple(map(count, sizes)), numbers)

    def element(self, slot: Any, first: Any, step: Any) -> Element:
        own, offset = first
        return Element(count(slot), (count(own), self.size(offset)), distance(step) if type(step) is int else self.size(step))

    def size(self, written: Any) -> Size:
        return read_size(written) if self.is_open else count(written)

    def printed(self, written: Any) -> Print:
        """What is shown; raises ValueError or TypeError unless it is a text with a format for each array."""
        values = tuple(self.array(*one) for one in written["values"])
        pieces = tuple(map(text, written["print"]))
        if len(pieces) != 2 * len(values) + 1:
            raise ValueError(f"{len(pieces)} pieces of a text for {len(values)} arrays")
        return Print(pieces, values)

    def computed(self, written: Any) -> Compute:
        """What Python computes; raises ValueError, TypeError or KeyError unless it is an op that it knows."""
        op, settings = text(written["compute"]), dict(written["settings"])
        arguments, results = (tuple(self.array(*one) for one in written[key]) for key in ("takes", "makes"))
        require_call(op, arguments, settings)
        decided = tuple(map(text, written["decides"])) if self.is_open else ()
        return Compute(op, settings, text(written["where"]), arguments, results, decided)

    def array(self, at: Any, shape: Any, dtype: Any) -> HostArray:
        return HostArray(place(at), tuple(map(self.size, shape)), named_dtype(dtype))


def _read_carried(written: Any) -> tuple[Carried, ...]:
    return tuple(Carried(count(slot), place(first), place(following)) for slot, first, following in written["carried"])


def _read_numbers(written: Any) -> tuple[Place, ...]:
    """Where the numbers of a message are; raises ValueError unless it has room for them."""
    numbers = tuple(map(place, written["numbers"]))
    if written["fail"].count("{}") < len(numbers):
        raise ValueError(f"{written['fail']!r} has no room for {len(numbers)} numbers")
    return numbers


def require_call(op: str, arguments: Sequence[HostArray], settings: Mapping[str, Setting]) -> None:
    """Raises ValueError or TypeError unless `op` is one that Python computes, of so many arguments with these settings."""
    if op not in SELECTIONS:
        raise ValueError(f"{op!r} is no op that Python computes")
    known = {name for name, p in signature(SELECTIONS[op]).parameters.items() if p.kind is Parameter.KEYWORD_ONLY}
    kinds = (int, bool, str, type(None))
    if not known.issuperset(settings) or not all(type(value) in kinds for value in settings.values()):
        raise ValueError(f"settings {settings}")
    signature(SELECTIONS[op]).bind(*arguments, **settings)
    if "to" in settings:
        named_dtype(settings["to"])
