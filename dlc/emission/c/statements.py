"""The statements of a function before they are rendered, and the passes that make them readable: Note [Order of statements].

Note [Order of statements]
Ops on tiles read whole operands before they compute. Emitted in that order, the operands of a tile would evict its
accumulators from the registers. So a movable definition (a load, a splat) is placed directly before its first use, or inlined
if that is its only use; it is never moved past writes, barriers and loops. A value whose only use is to become the next value
of a carried variable is computed directly into that variable. Unused definitions are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_INDENT = "    "


class Name(str):
    """A value or variable of the function, as opposed to other text."""

    __slots__ = ()


class SourceText(str):
    """Text that records which names it contains. Use `concat` to build it: other string operations lose the names."""

    tokens: tuple[str, ...]


def concat(*texts: str) -> SourceText:
    """Concatenate texts, keeping track of the names in them."""
    tokens: list[str] = []
    for text in texts:
        if type(text) is SourceText:
            tokens += text.tokens
        elif text:
            tokens.append(text)
    result = SourceText("".join(tokens))
    result.tokens = tuple(tokens)
    return result


def join(separator: str, texts: Sequence[str]) -> SourceText:
    """Join texts with a separator between them."""
    return concat(*[token for text in texts for token in (separator, text)][1:])


def _tokens(text: str) -> tuple[str, ...]:
    return text.tokens if type(text) is SourceText else (text,)


@dataclass(slots=True)
class Define:
    """`const type name = value;`, without side effects; `movable` if it may be computed later.

    `needs_parentheses`: the value may be inlined only where parentheses surround its use.
    """

    name: Name
    type: str
    value: str
    movable: bool = False
    needs_parentheses: bool = False


@dataclass(slots=True)
class Assign:
    """`type name = value;` the first time and `name = value;` afterwards."""

    name: Name
    value: str
    type: str = ""


@dataclass(slots=True)
class Effect:
    """A statement with side effects, which no other statement may be moved across."""

    text: str


@dataclass(slots=True)
class Comment:
    """A comment line."""

    text: str


@dataclass(slots=True)
class NestedRegions:
    """Regions with their heads, such as `if (…) {` and `} else {`."""

    regions: list[tuple[str, list[Statement]]] = field(default_factory=list["tuple[str, list[Statement]]"])


Statement = Define | Assign | Effect | Comment | NestedRegions


def _names(line: Statement) -> Iterator[Name]:
    """Yield the names that a statement reads."""
    match line:
        case Define(value=text) | Assign(value=text) | Effect(text=text):
            for token in _tokens(text):
                if isinstance(token, Name):
                    yield token
        case NestedRegions(regions=regions):
            for head, lines in regions:
                yield from _names(Effect(head))
                for inner in lines:
                    yield from _names(inner)
        case Comment():
            pass


def _used_names(line: Statement) -> list[Name]:
    """Return the names that a statement reads and those that nested statements assign."""
    names = list(_names(line))
    if isinstance(line, NestedRegions):
        names += [i.name for _, inner in line.regions for i in inner if isinstance(i, Assign)]
        names += [name for _, inner in line.regions for i in inner if isinstance(i, NestedRegions) for name in _used_names(i)]
    return names


def reorder_statements(lines: Sequence[Statement]) -> list[Statement]:
    """Return the statements of a function in their final order; see Note [Order of statements]."""
    uses: Counter[str] = Counter()
    for line in lines:
        uses.update(_names(line))
    return _coalesce(_sink(_remove_unused(lines, uses), uses), uses)


def _remove_unused(lines: Sequence[Statement], uses: Counter[str]) -> list[Statement]:
    """Remove definitions without uses."""
    result: list[Statement] = []
    for line in reversed(lines):
        if isinstance(line, Define) and not uses[line.name]:
            uses.subtract(_names(line))
            continue
        if isinstance(line, NestedRegions):
            line = NestedRegions([(head, _remove_unused(inner, uses)) for head, inner in reversed(line.regions)][::-1])
        result.append(line)
    return result[::-1]


def _sink(lines: Sequence[Statement], uses: Counter[str]) -> list[Statement]:
    """Move movable definitions to their first uses, or inline them."""
    sunk_statements: list[Statement] = []
    pending: dict[str, Define] = {}

    def resolve(text: str) -> str:
        """Return the text after its pending definitions have been placed before it or inlined."""
        if not pending:
            return text
        tokens, is_changed = list(_tokens(text)), False
        for k, token in enumerate(tokens):
            if not isinstance(token, Name) or (define := pending.pop(token, None)) is None:
                continue
            value = resolve(define.value)
            is_parenthesized = 0 < k < len(tokens) - 1 and tokens[k - 1].endswith("(") and tokens[k + 1].startswith(")")
            if uses[token] != 1 or (define.needs_parentheses and not is_parenthesized):
                sunk_statements.append(Define(token, define.type, value))
                continue
            # A cast binds less tightly than a postfix operator.
            casts = value.startswith("(") and tokens[k + 1 : k + 2] and tokens[k + 1].startswith((".", "["))
            tokens[k], is_changed = concat("(", value, ")") if casts else value, True
        return concat(*tokens) if is_changed else text

    def place_pending() -> None:
        while pending:
            name, define = next(iter(pending.items()))
            del pending[name]
            sunk_statements.append(Define(define.name, define.type, resolve(define.value)))

    for line in lines:
        match line:
            case Define(movable=True):
                pending[line.name] = line
            case Define(name, type, value):
                sunk_statements.append(Define(name, type, resolve(value)))
            case Assign(name, value, type):
                value = resolve(value)
                if not type:
                    place_pending()
                sunk_statements.append(Assign(name, value, type))
            case Effect(text):
                text = resolve(text)
                place_pending()
                sunk_statements.append(Effect(text))
            case NestedRegions(regions):
                (head, first), *others = regions
                # A loop condition is evaluated repeatedly: do not inline definitions into it.
                head = resolve(head) if head.startswith("if ") else head
                place_pending()
                sunk_statements.append(
                    _merge_else_if(NestedRegions([(h, _sink(inner, uses)) for h, inner in ((head, first), *others)]))
                )
            case Comment():
                sunk_statements.append(line)
    place_pending()
    return sunk_statements


def _merge_else_if(nest: NestedRegions) -> NestedRegions:
    """Rewrite an `else` whose body is a single `if` as `else if`."""
    *leading_regions, (head, lines) = nest.regions
    if (
        leading_regions
        and len(lines) == 1
        and isinstance(inner := lines[0], NestedRegions)
        and inner.regions[0][0].startswith("if ")
    ):
        (first, body), *later_regions = inner.regions
        return NestedRegions([*leading_regions, (concat(head.removesuffix("{"), first), body), *later_regions])
    return nest


def _coalesce(lines: Sequence[Statement], uses: Counter[str]) -> list[Statement]:
    """Rewrite `const T x = v; … a = x;` as `a = v; …` if no statement between them reads the variable a."""
    lines = [
        NestedRegions([(h, _coalesce(inner, uses)) for h, inner in line.regions]) if isinstance(line, NestedRegions) else line
        for line in lines
    ]
    defined: dict[str, int] = {}
    last_read: dict[str, int] = {}
    for position, line in enumerate(lines):
        last_read.update(dict.fromkeys(_used_names(line), position))
        if isinstance(line, Define):
            defined[line.name] = position
    result: list[Statement | None] = list(lines)
    for position, line in enumerate(lines):
        if not isinstance(line, Assign) or line.type or uses[line.value] != 1:
            continue
        source = defined.get(line.value)
        if source is not None and last_read.get(line.name, -1) <= source:
            define = lines[source]
            assert isinstance(define, Define)
            result[source], result[position] = Assign(line.name, define.value), None
    return [line for line in result if line is not None]


def render(lines: Sequence[Statement], indent: str = _INDENT) -> Iterator[str]:
    """Yield the lines of text; a comment that nothing follows is dropped."""
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
            case NestedRegions(regions):
                for head, inner in regions:
                    yield from (indent + line for line in head.split("\n"))
                    yield from render(inner, indent + _INDENT)
                yield indent + "}"
