"""The lines of a function before they are text, and what makes them readable: Note [Order of lines].

Note [Order of lines]
Ops on tiles read whole operands before they compute, and written so, a tile's operands would push its accumulators out of
the registers. So what is movable (reads, splats) goes directly before its first use, or into it if there is no other;
writes, barriers and loops are not passed. A value that does nothing but become the next value of a carried variable is
computed into that variable. What nobody uses is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_INDENT = "    "


class Name(str):
    """A value or variable of the function, as against text about it."""

    __slots__ = ()


class Code(str):
    """Text that knows the names in it; written by `code`, since what is put together otherwise forgets them."""

    pieces: tuple[str, ...]


def code(*parts: str) -> Code:
    """The parts as one."""
    pieces: list[str] = []
    for part in parts:
        if type(part) is Code:
            pieces += part.pieces
        elif part:
            pieces.append(part)
    joined = Code("".join(pieces))
    joined.pieces = tuple(pieces)
    return joined


def join(separator: str, parts: Sequence[str]) -> Code:
    """The parts with a separator between them."""
    return code(*[text for part in parts for text in (separator, part)][1:])


def _pieces(text: str) -> tuple[str, ...]:
    return text.pieces if type(text) is Code else (text,)


@dataclass(slots=True)
class Define:
    """`const type name = value;`, without effects; `movable` if it may be computed later.

    `loose`: its value is written into another text only where it is by itself in parentheses.
    """

    name: Name
    type: str
    value: str
    movable: bool = False
    loose: bool = False


@dataclass(slots=True)
class Assign:
    """`type name = value;` for a variable, and `name = value;` later."""

    name: Name
    value: str
    type: str = ""


@dataclass(slots=True)
class Effect:
    """A statement that nothing passes."""

    text: str


@dataclass(slots=True)
class Comment:
    text: str


@dataclass(slots=True)
class Nest:
    """Regions with their heads, as `if (…) {` and `} else {`."""

    parts: list[tuple[str, list[Line]]] = field(default_factory=list["tuple[str, list[Line]]"])


Line = Define | Assign | Effect | Comment | Nest


def _names(line: Line) -> Iterator[Name]:
    """What a line reads."""
    match line:
        case Define(value=text) | Assign(value=text) | Effect(text=text):
            for piece in _pieces(text):
                if isinstance(piece, Name):
                    yield piece
        case Nest(parts=parts):
            for head, lines in parts:
                yield from _names(Effect(head))
                for inner in lines:
                    yield from _names(inner)
        case Comment():
            pass


def _touched(line: Line) -> list[Name]:
    """The names that a line reads, and those that lines inside it assign to."""
    names = list(_names(line))
    if isinstance(line, Nest):
        names += [i.name for _, inner in line.parts for i in inner if isinstance(i, Assign)]
        names += [name for _, inner in line.parts for i in inner if isinstance(i, Nest) for name in _touched(i)]
    return names


def tidy(lines: Sequence[Line]) -> list[Line]:
    """The lines of a function in order, see Note [Order of lines]."""
    uses: Counter[str] = Counter()
    for line in lines:
        uses.update(_names(line))
    return _coalesce(_sink(_used(lines, uses), uses), uses)


def _used(lines: Sequence[Line], uses: Counter[str]) -> list[Line]:
    kept: list[Line] = []
    for line in reversed(lines):
        if isinstance(line, Define) and not uses[line.name]:
            uses.subtract(_names(line))
            continue
        if isinstance(line, Nest):
            line = Nest([(head, _used(inner, uses)) for head, inner in reversed(line.parts)][::-1])
        kept.append(line)
    return kept[::-1]


def _sink(lines: Sequence[Line], uses: Counter[str]) -> list[Line]:
    placed: list[Line] = []
    waiting: dict[str, Define] = {}

    def resolve(text: str) -> str:
        """The text, after what it needs has been placed before it or written into it."""
        if not waiting:
            return text
        pieces, found = list(_pieces(text)), False
        for k, piece in enumerate(pieces):
            if not isinstance(piece, Name) or (define := waiting.pop(piece, None)) is None:
                continue
            value = resolve(define.value)
            alone = 0 < k < len(pieces) - 1 and pieces[k - 1].endswith("(") and pieces[k + 1].startswith(")")
            if uses[piece] != 1 or (define.loose and not alone):
                placed.append(Define(piece, define.type, value))
                continue
            # A cast binds less than what follows a name.
            casts = value.startswith("(") and pieces[k + 1 : k + 2] and pieces[k + 1].startswith((".", "["))
            pieces[k], found = code("(", value, ")") if casts else value, True
        return code(*pieces) if found else text

    def place_all() -> None:
        while waiting:
            name, define = next(iter(waiting.items()))
            del waiting[name]
            placed.append(Define(define.name, define.type, resolve(define.value)))

    for line in lines:
        match line:
            case Define(movable=True):
                waiting[line.name] = line
            case Define(name, type, value):
                placed.append(Define(name, type, resolve(value)))
            case Assign(name, value, type):
                value = resolve(value)
                if not type:
                    place_all()
                placed.append(Assign(name, value, type))
            case Effect(text):
                text = resolve(text)
                place_all()
                placed.append(Effect(text))
            case Nest(parts):
                (head, first), *others = parts
                # What a loop asks it asks again.
                head = resolve(head) if head.startswith("if ") else head
                place_all()
                placed.append(_chained(Nest([(h, _sink(inner, uses)) for h, inner in ((head, first), *others)])))
            case Comment():
                placed.append(line)
    place_all()
    return placed


def _chained(nest: Nest) -> Nest:
    """An `if` that is all there is behind an `else` as an `else if`."""
    *parts, (head, lines) = nest.parts
    if parts and len(lines) == 1 and isinstance(inner := lines[0], Nest) and inner.parts[0][0].startswith("if "):
        (first, body), *rest = inner.parts
        return Nest([*parts, (code(head.removesuffix("{"), first), body), *rest])
    return nest


def _coalesce(lines: Sequence[Line], uses: Counter[str]) -> list[Line]:
    """`const T x = v; … a = x;` → `a = v; …`, where nothing between reads the variable a."""
    lines = [
        Nest([(h, _coalesce(inner, uses)) for h, inner in line.parts]) if isinstance(line, Nest) else line for line in lines
    ]
    defined: dict[str, int] = {}
    last_read: dict[str, int] = {}
    for place, line in enumerate(lines):
        last_read.update(dict.fromkeys(_touched(line), place))
        if isinstance(line, Define):
            defined[line.name] = place
    result: list[Line | None] = list(lines)
    for place, line in enumerate(lines):
        if not isinstance(line, Assign) or line.type or uses[line.value] != 1:
            continue
        source = defined.get(line.value)
        if source is not None and last_read.get(line.name, -1) <= source:
            define = lines[source]
            assert isinstance(define, Define)
            result[source], result[place] = Assign(line.name, define.value), None
    return [line for line in result if line is not None]


def render(lines: Sequence[Line], indent: str = _INDENT) -> Iterator[str]:
    """The text of lines; a comment that nothing follows is left out."""
    comment = ""
    for line in lines:
        if isinstance(line, Comment):
            comment = f"{indent}// {line.text}"
            continue
        if comment:
            yield comment
            comment = ""
        match line:
            case Define(name, type, value):
                yield f"{indent}const {type} {name} = {value};" if "*" not in type else f"{indent}{type}{name} = {value};"
            case Assign(name, value, type):
                yield f"{indent}{type + ' ' if type else ''}{name} = {value};"
            case Effect(text):
                yield indent + text
            case Nest(parts):
                for head, inner in parts:
                    yield from (indent + line for line in head.split("\n"))
                    yield from render(inner, indent + _INDENT)
                yield indent + "}"
