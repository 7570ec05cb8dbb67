"""Texts of modules that passes change a little at a time: what stays as it was is not printed again.

texts = Texts()
texts.of(module)            its text, and the line on which each op begins
texts.of(module)            None: nothing has changed since
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from dlc.instrument.provenance import origins
from dlc.ir import Attribute, Block, IsolatedFromAbove, IsTerminator, Operation, Printer, Region, SSAValue

T = TypeVar("T")

# All that the text of an op hangs on but its bodies, and where it comes from.
_MadeOf = tuple[Any, ...]
# A block ends here.
_END: _MadeOf = (None,)
# Where a name stands while an op is printed: no text has it, as strings in texts are escaped.
_NAME = "\0"


class ByIdentity(Generic[T]):
    """A function of attributes, which is asked once of each."""

    def __init__(self, function: Callable[[Attribute], T]) -> None:
        self._function = function
        # They are kept alive, so that their identity is sound.
        self._known: dict[int, tuple[Attribute, T]] = {}

    def __call__(self, attribute: Attribute) -> T:
        return (self._known.get(id(attribute)) or self._asked(attribute))[1]

    def each(self, attributes: Iterable[Attribute]) -> tuple[T, ...]:
        """Of each of some attributes."""
        known, asked = self._known, self._asked
        return tuple([(known.get(id(attribute)) or asked(attribute))[1] for attribute in attributes])

    def _asked(self, attribute: Attribute) -> tuple[Attribute, T]:
        known = self._known[id(attribute)] = attribute, self._function(attribute)
        return known


class _Hole(NamedTuple):
    """Where a body stands in an op's text, by its number, and what of it is shown: as `Printer.print_region` has it."""

    region: int
    entry_arguments: bool
    empty_block: bool
    terminators: bool


class _Parts(NamedTuple):
    """The text of an op: formats and the places of the values whose names they take, with a body after each but the last.

    Places are among operands, results and the arguments of bodies. Names change more often than ops do; in one that is
    isolated, those that are given in it are its own.
    """

    texts: tuple[tuple[str, tuple[int, ...]], ...]
    holes: tuple[_Hole, ...]
    isolated: bool


class Alike:
    """Texts of ops and attributes that are made of the same, whatever module they are in."""

    def __init__(self) -> None:
        self._numbers: dict[Attribute, int] = {}
        self._ops: dict[tuple[Any, ...], _Parts] = {}
        self.number = ByIdentity(lambda attribute: self._numbers.setdefault(attribute, len(self._numbers)))
        self._printer = _OpPrinter(self.number)
        self.origins = ByIdentity(origins)

    def parts(self, op: Operation, values: Sequence[SSAValue]) -> _Parts:
        """The text of an op of these values."""
        numbers, places = self.number.each, {id(v): place for place, v in enumerate(values)}
        made_of = (
            type(op),
            len(op.results),
            tuple([places[id(v)] for v in values]),
            numbers([v.type for v in values]),
            *op.properties,
            numbers(op.properties.values()),
            *op.attributes,
            numbers(op.attributes.values()),
            tuple(_shape(op)) if op.regions else None,
        )
        # Where an op leads to blocks is no matter of what it is made of.
        if (parts := self._ops.get(made_of)) is None or op.successors:
            parts = self._ops[made_of] = self._printer.parts(op, places)
        return parts

    def text(self, attribute: Attribute) -> str:
        """The text of an attribute."""
        return self._printer.text(attribute)


class Text(NamedTuple):
    """A text without locations, and the line, from 0, on which each op in it begins."""

    text: str
    lines: dict[Operation, int]


class _Known(NamedTuple):
    """What an op was made of, its values, and its text with those that it names, by their identities."""

    made_of: _MadeOf
    values: Sequence[SSAValue]
    texts: Sequence[tuple[str, tuple[int, ...]]]
    holes: Sequence[_Hole]
    isolated: bool


class Texts:
    """Texts of one module as it changes; those of what is `alike` may be shared with other modules."""

    def __init__(self, alike: Alike | None = None) -> None:
        self.alike = alike or Alike()
        self._before: list[_MadeOf] = []
        self._known: dict[int, _Known] = {}

    def of(self, op: Operation) -> Text | None:
        """The text of `op`; None if it is the one of the last time, and so is where everything in it comes from."""
        # To look whether anything has changed takes a part of what putting the text together does.
        made_of: list[_MadeOf] = []
        _look(op, made_of)
        if made_of == self._before:
            return None
        self._before = made_of
        writer = _Writer(self, {id(found[0]): found for found in made_of})
        writer.op(op, "\n")
        return Text("".join(writer.pieces) + "\n", writer.lines)

    def known(self, op: Operation, made_of: _MadeOf) -> _Known:
        """An op that is made of this now."""
        known = self._known.get(id(op))
        if known is None or known.made_of != made_of:
            values = (*_operands(op), *op.results, *_arguments(op)) if op.regions else (*_operands(op), *op.results)
            parts = self.alike.parts(op, values)
            texts = [(text, tuple([id(values[place]) for place in places])) for text, places in parts.texts]
            known = self._known[id(op)] = _Known(made_of, values, texts, parts.holes, parts.isolated)
        return known


def printed(op: Operation) -> Text:
    """The text of an op, which nobody has seen before."""
    text = Texts().of(op)
    assert text is not None, "there was none"
    return text


def _look(op: Operation, found: list[_MadeOf]) -> None:
    """What an op and all in it are made of, in order."""
    # Without the generators and the properties of xDSL, which take longer than all else.
    fields: Any = op
    made_of: list[Any] = [op, op.location, *fields._operands, *op.properties.values()]
    if op.attributes:
        made_of += op.attributes.values()
    value: Any
    for value in fields.results:
        made_of += value.type, value._name
    if not op.regions:
        found.append(tuple(made_of))
        return
    made_of += _shape(op)
    for value in _arguments(op):
        made_of += value.type, value._name
    found.append(tuple(made_of))
    for region in op.regions:
        for block in region.blocks:
            inner: Any = block.first_op
            while inner is not None:
                _look(inner, found)
                inner = inner.next_op
            found.append(_END)


def _operands(op: Any) -> Sequence[SSAValue]:
    """The operands of an op, which xDSL hands out one by one."""
    return op._operands


def _shape(op: Operation) -> Iterator[tuple[int, bool] | None]:
    """How many arguments each block of an op has, and whether ops, body by body: an op may leave out what is empty."""
    for region in op.regions:
        yield None
        for block in region.blocks:
            yield len(block.args), block.is_empty


def _arguments(op: Operation) -> Iterator[SSAValue]:
    return (value for region in op.regions for block in region.blocks for value in block.args)


def _label(block: Block) -> str:
    region = block.parent
    return f"^{block.name_hint or f'bb{region.get_block_index(block) if region is not None else 0}'}"


class _Writer:
    """Puts the text of a module together; values are named where they are met first, the results of an op before all else."""

    def __init__(self, texts: Texts, made_of: Mapping[int, _MadeOf]) -> None:
        self.pieces: list[str] = []
        self.lines: dict[Operation, int] = {}
        self._texts, self._made_of = texts, made_of
        self._names: dict[int, str] = {}
        # How often each name was given, and how many values have none of their own.
        self._given: dict[str, int] = {}
        self._unnamed = 0
        self._line = 0

    def op(self, op: Operation, newline: str) -> None:
        """Writes an op; `newline` is what a line as far to the right as it begins with."""
        self.lines[op] = self._line
        for value in op.results:
            self._name(value)
        known = self._texts.known(op, self._made_of[id(op)])
        if known.holes:
            self._bodies(op, known, newline)
        text, values = known.texts[-1]
        try:
            self.pieces.append(text % tuple([self._names[v] for v in values]))
        except KeyError:
            self._name_all(values, known)
            self.pieces.append(text % tuple([self._names[v] for v in values]))

    def _bodies(self, op: Operation, known: _Known, newline: str) -> None:
        """Writes an op but for what is behind its last body."""
        outside = (dict(self._given), self._unnamed) if known.isolated else None
        for (text, values), hole in zip(known.texts, known.holes, strict=False):
            self._name_all(values, known)
            self.pieces.append(text % tuple([self._names[v] for v in values]))
            self._region(op.regions[hole.region], hole, newline)
        if outside is not None:
            self._given, self._unnamed = outside

    def _name_all(self, values: Sequence[int], known: _Known) -> None:
        """Names those that have no name yet."""
        if unnamed := [v for v in values if v not in self._names]:
            all_values = {id(value): value for value in known.values}
            for value in dict.fromkeys(unnamed):
                self._name(all_values[value])

    def _region(self, region: Region, hole: _Hole, newline: str) -> None:
        self.pieces.append("{")
        within = f"{newline}  "
        for k, block in enumerate(region.blocks):
            if k or (block.args and hole.entry_arguments) or (block.is_empty and hole.empty_block):
                self._line += 1
                self.pieces += newline, self._labelled(block)
            all_ops = hole.terminators or k > 0
            for op in block.ops:
                if all_ops or not op.has_trait(IsTerminator):
                    self._line += 1
                    self.pieces.append(within)
                    self.op(op, within)
        self._line += 1
        self.pieces += newline, "}"

    def _labelled(self, block: Block) -> str:
        for value in block.args:
            if id(value) not in self._names:
                self._name(value)
        arguments = ", ".join(f"{self._names[id(v)]}: {self._texts.alike.text(v.type)}" for v in block.args)
        return f"{_label(block)}({arguments}):" if arguments else f"{_label(block)}:"

    def _name(self, value: SSAValue) -> None:
        if hint := value.name_hint:
            count = self._given.get(hint, 0)
            self._given[hint] = count + 1
            self._names[id(value)] = f"%{hint}_{count}" if count else f"%{hint}"
        else:
            self._names[id(value)] = f"%{self._unnamed}"
            self._unnamed += 1


class _OpPrinter(Printer):
    """Prints an op as formats, which take the names of values, and without its bodies."""

    def __init__(self, number: Callable[[Attribute], int]) -> None:
        super().__init__()
        # Texts of attributes, by their numbers: equal ones have the same.
        self._number, self._texts = number, dict[int, str]()
        self._pieces: list[str] = []
        self._order: list[int] = []
        self._places: Mapping[int, int] = {}
        self._regions: Mapping[int, int] = {}
        self._done: list[tuple[str, tuple[int, ...]]] = []
        self._holes: list[_Hole] = []

    def parts(self, op: Operation, places: Mapping[int, int]) -> _Parts:
        """The text of an op whose values have these places."""
        self._places, self._regions = places, {id(region): k for k, region in enumerate(op.regions)}
        self._done, self._holes = [], []
        if op.regions:
            self.print_op(op)
        else:
            self._print_plain(op)
        self._end_text()
        return _Parts(tuple(self._done), tuple(self._holes), bool(op.regions) and op.has_trait(IsolatedFromAbove))

    def _print_plain(self, op: Operation) -> None:
        """What `print_op` does for an op that names of values have no scope in."""
        self._print_results(op)
        if type(op).print is Operation.print:
            self.print_string(f'"{op.name}"')
            self.print_op_with_default_format(op)
        else:
            self.print_string(op.name)
            op.print(self)

    def _end_text(self) -> None:
        text = "".join(self._pieces).replace("%", "%%").replace(_NAME, "%s")
        self._done.append((text, tuple(self._order)))
        self._pieces, self._order = [], []

    def text(self, attribute: Attribute) -> str:
        """The text of an attribute."""
        number = self._number(attribute)
        if (text := self._texts.get(number)) is None:
            outside, self._pieces = self._pieces, []
            super().print_attribute(attribute)
            text = self._texts[number] = "".join(self._pieces)
            self._pieces = outside
        return text

    def print_attribute(self, attribute: Attribute) -> None:
        self._pieces.append(self.text(attribute))

    def print_ssa_value(self, value: SSAValue) -> str:
        self._pieces.append(_NAME)
        self._order.append(self._places[id(value)])
        return ""

    def print_region(
        self,
        region: Region,
        print_entry_block_args: bool = True,
        print_empty_block: bool = True,
        print_block_terminators: bool = True,
    ) -> None:
        self._end_text()
        self._holes.append(_Hole(self._regions[id(region)], print_entry_block_args, print_empty_block, print_block_terminators))

    def print_block_name(self, block: Block) -> str:
        self.print_string(_label(block))
        return _label(block)

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        self._pieces.append(text)
