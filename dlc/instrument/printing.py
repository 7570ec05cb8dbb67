"""Print modules incrementally while passes change them: unchanged ops are not printed again.

texts = PrintedModules()
texts.of(module)            its text, and the line on which each op begins
texts.of(module)            None: nothing has changed since
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from dlc.instrument.provenance import origins
from dlc.ir import Attribute, Block, IsolatedFromAbove, IsTerminator, Operation, Printer, Region, SSAValue

T = TypeVar("T")

# The inputs of an op's text, except its bodies, and its location.
_Content = tuple[Any, ...]
# Marks the end of a block.
_END: _Content = (None,)
# Placeholder of a name while an op is printed; it cannot occur in the text, where strings are escaped.
_NAME_MARK = "\0"


class IdentityCache(Generic[T]):
    """A function of attributes, memoized by identity."""

    def __init__(self, function: Callable[[Attribute], T]) -> None:
        self._function = function
        # The cache keeps the attributes alive, so that their identity is a valid key.
        self._printed: dict[int, tuple[Attribute, T]] = {}

    def __call__(self, attribute: Attribute) -> T:
        return (self._printed.get(id(attribute)) or self._compute(attribute))[1]

    def each(self, attributes: Iterable[Attribute]) -> tuple[T, ...]:
        """Apply the function to each attribute."""
        entries, compute = self._printed, self._compute
        return tuple([(entries.get(id(attribute)) or compute(attribute))[1] for attribute in attributes])

    def _compute(self, attribute: Attribute) -> tuple[Attribute, T]:
        entry = self._printed[id(attribute)] = attribute, self._function(attribute)
        return entry


class _BodySlot(NamedTuple):
    """The position of a body in an op's text, and the parameters of `Printer.print_region` for it."""

    region: int
    entry_arguments: bool
    empty_block: bool
    terminators: bool


class _OpText(NamedTuple):
    """The text of an op: format strings with the indices of the values whose names they contain, separated by bodies.

    Indices refer to the list of operands, results and body arguments. Names change more often than ops do. In an isolated op,
    names have a scope of their own.
    """

    texts: tuple[tuple[str, tuple[int, ...]], ...]
    slots: tuple[_BodySlot, ...]
    isolated: bool


class SharedTexts:
    """Texts of ops and attributes by content, shared by modules."""

    def __init__(self) -> None:
        self._attribute_ids: dict[Attribute, int] = {}
        self._ops: dict[tuple[Any, ...], _OpText] = {}
        self.attribute_id = IdentityCache(lambda attribute: self._attribute_ids.setdefault(attribute, len(self._attribute_ids)))
        self._printer = _OpPrinter(self.attribute_id)
        self.origins = IdentityCache(origins)

    def op_text(self, op: Operation, values: Sequence[SSAValue]) -> _OpText:
        """Return the text of an op with these values."""
        ids_of, indices = self.attribute_id.each, {id(v): position for position, v in enumerate(values)}
        content = (
            type(op),
            len(op.results),
            tuple([indices[id(v)] for v in values]),
            ids_of([v.type for v in values]),
            *op.properties,
            ids_of(op.properties.values()),
            *op.attributes,
            ids_of(op.attributes.values()),
            tuple(_shape(op)) if op.regions else None,
        )
        # Successor blocks are not part of the key.
        if (text := self._ops.get(content)) is None or op.successors:
            text = self._ops[content] = self._printer.op_text(op, indices)
        return text

    def text(self, attribute: Attribute) -> str:
        """Return the text of an attribute."""
        return self._printer.text(attribute)


class PrintedModule(NamedTuple):
    """A text without locations, and the 0-based line on which each op begins."""

    text: str
    lines: dict[Operation, int]


class _PrintedOp(NamedTuple):
    """The content of an op when it was printed, its values, and its text with the identities of the values that it names."""

    content: _Content
    values: Sequence[SSAValue]
    texts: Sequence[tuple[str, tuple[int, ...]]]
    slots: Sequence[_BodySlot]
    isolated: bool


class PrintedModules:
    """Texts of one module as it changes; `shared_texts` may be shared with other modules."""

    def __init__(self, shared_texts: SharedTexts | None = None) -> None:
        self.shared_texts = shared_texts or SharedTexts()
        self._before: list[_Content] = []
        self._printed: dict[int, _PrintedOp] = {}

    def of(self, op: Operation) -> PrintedModule | None:
        """Return the text of `op`; None if neither the text nor a location has changed since the last call."""
        # Comparing the contents is much faster than assembling the text.
        content: list[_Content] = []
        _collect_contents(op, content)
        if content == self._before:
            return None
        self._before = content
        writer = _ModuleWriter(self, {id(op_content[0]): op_content for op_content in content})
        writer.op(op, "\n")
        return PrintedModule("".join(writer.chunks) + "\n", writer.lines)

    def printed_op(self, op: Operation, content: _Content) -> _PrintedOp:
        """Return the printed form of an op with this content."""
        printed_op = self._printed.get(id(op))
        if printed_op is None or printed_op.content != content:
            values = (*_operands(op), *op.results, *_arguments(op)) if op.regions else (*_operands(op), *op.results)
            op_text = self.shared_texts.op_text(op, values)
            texts = [(text, tuple([id(values[position]) for position in indices])) for text, indices in op_text.texts]
            printed_op = self._printed[id(op)] = _PrintedOp(content, values, texts, op_text.slots, op_text.isolated)
        return printed_op


def print_with_lines(op: Operation) -> PrintedModule:
    """Return the text of an op that has not been printed before."""
    text = PrintedModules().of(op)
    assert text is not None, "the first text is never unchanged"
    return text


def _collect_contents(op: Operation, contents: list[_Content]) -> None:
    """Append the contents of an op and all ops in it, in order."""
    # Access the private fields: xDSL's properties and generators would dominate the time.
    fields: Any = op
    content: list[Any] = [op, op.location, *fields._operands, *op.properties.values()]
    if op.attributes:
        content += op.attributes.values()
    value: Any
    for value in fields.results:
        content += value.type, value._name
    if not op.regions:
        contents.append(tuple(content))
        return
    content += _shape(op)
    for value in _arguments(op):
        content += value.type, value._name
    contents.append(tuple(content))
    for region in op.regions:
        for block in region.blocks:
            inner: Any = block.first_op
            while inner is not None:
                _collect_contents(inner, contents)
                inner = inner.next_op
            contents.append(_END)


def _operands(op: Any) -> Sequence[SSAValue]:
    """Return the operands of an op as stored; xDSL's property is slow."""
    return op._operands


def _shape(op: Operation) -> Iterator[tuple[int, bool] | None]:
    """Yield the argument count of each block and whether it is empty, region by region, which the printed form depends on."""
    for region in op.regions:
        yield None
        for block in region.blocks:
            yield len(block.args), block.is_empty


def _arguments(op: Operation) -> Iterator[SSAValue]:
    return (value for region in op.regions for block in region.blocks for value in block.args)


def _label(block: Block) -> str:
    region = block.parent
    return f"^{block.name_hint or f'bb{region.get_block_index(block) if region is not None else 0}'}"


class _ModuleWriter:
    """Assemble the text of a module; values are named in order of appearance, the results of an op first."""

    def __init__(self, texts: PrintedModules, content: Mapping[int, _Content]) -> None:
        self.chunks: list[str] = []
        self.lines: dict[Operation, int] = {}
        self._texts, self._contents = texts, content
        self._names: dict[int, str] = {}
        # The number of values per name hint, and of values without a hint.
        self._hint_counts: dict[str, int] = {}
        self._unnamed = 0
        self._line = 0

    def op(self, op: Operation, newline: str) -> None:
        """Write an op; `newline` is a line break followed by the current indentation."""
        self.lines[op] = self._line
        for value in op.results:
            self._name(value)
        printed_op = self._texts.printed_op(op, self._contents[id(op)])
        if printed_op.slots:
            self._bodies(op, printed_op, newline)
        text, values = printed_op.texts[-1]
        try:
            self.chunks.append(text % tuple([self._names[v] for v in values]))
        except KeyError:
            self._name_all(values, printed_op)
            self.chunks.append(text % tuple([self._names[v] for v in values]))

    def _bodies(self, op: Operation, printed_op: _PrintedOp, newline: str) -> None:
        """Write an op up to the end of its last body."""
        outer_names = (dict(self._hint_counts), self._unnamed) if printed_op.isolated else None
        for (text, values), slot in zip(printed_op.texts, printed_op.slots, strict=False):
            self._name_all(values, printed_op)
            self.chunks.append(text % tuple([self._names[v] for v in values]))
            self._region(op.regions[slot.region], slot, newline)
        if outer_names is not None:
            self._hint_counts, self._unnamed = outer_names

    def _name_all(self, values: Sequence[int], printed_op: _PrintedOp) -> None:
        """Name the values that have no name yet."""
        if unnamed_values := [v for v in values if v not in self._names]:
            all_values = {id(value): value for value in printed_op.values}
            for value in dict.fromkeys(unnamed_values):
                self._name(all_values[value])

    def _region(self, region: Region, slot: _BodySlot, newline: str) -> None:
        self.chunks.append("{")
        within = f"{newline}  "
        for k, block in enumerate(region.blocks):
            if k or (block.args and slot.entry_arguments) or (block.is_empty and slot.empty_block):
                self._line += 1
                self.chunks += newline, self._labelled(block)
            all_ops = slot.terminators or k > 0
            for op in block.ops:
                if all_ops or not op.has_trait(IsTerminator):
                    self._line += 1
                    self.chunks.append(within)
                    self.op(op, within)
        self._line += 1
        self.chunks += newline, "}"

    def _labelled(self, block: Block) -> str:
        for value in block.args:
            if id(value) not in self._names:
                self._name(value)
        arguments = ", ".join(f"{self._names[id(v)]}: {self._texts.shared_texts.text(v.type)}" for v in block.args)
        return f"{_label(block)}({arguments}):" if arguments else f"{_label(block)}:"

    def _name(self, value: SSAValue) -> None:
        if hint := value.name_hint:
            count = self._hint_counts.get(hint, 0)
            self._hint_counts[hint] = count + 1
            self._names[id(value)] = f"%{hint}_{count}" if count else f"%{hint}"
        else:
            self._names[id(value)] = f"%{self._unnamed}"
            self._unnamed += 1


class _OpPrinter(Printer):
    """Print an op as format strings, without the names of values and without its bodies."""

    def __init__(self, attribute_id: Callable[[Attribute], int]) -> None:
        super().__init__()
        # Texts of attributes by ID; equal attributes have equal IDs.
        self._attribute_id, self._texts = attribute_id, dict[int, str]()
        self._chunks: list[str] = []
        self._order: list[int] = []
        self._indices: Mapping[int, int] = {}
        self._regions: Mapping[int, int] = {}
        self._done: list[tuple[str, tuple[int, ...]]] = []
        self._slots: list[_BodySlot] = []

    def op_text(self, op: Operation, indices: Mapping[int, int]) -> _OpText:
        """Return the text of an op whose values have these indices."""
        self._indices, self._regions = indices, {id(region): k for k, region in enumerate(op.regions)}
        self._done, self._slots = [], []
        if op.regions:
            self.print_op(op)
        else:
            self._print_plain(op)
        self._end_text()
        return _OpText(tuple(self._done), tuple(self._slots), bool(op.regions) and op.has_trait(IsolatedFromAbove))

    def _print_plain(self, op: Operation) -> None:
        """Print an op without regions, as `print_op` does for ops that open no scope for names."""
        self._print_results(op)
        if type(op).print is Operation.print:
            self.print_string(f'"{op.name}"')
            self.print_op_with_default_format(op)
        else:
            self.print_string(op.name)
            op.print(self)

    def _end_text(self) -> None:
        text = "".join(self._chunks).replace("%", "%%").replace(_NAME_MARK, "%s")
        self._done.append((text, tuple(self._order)))
        self._chunks, self._order = [], []

    def text(self, attribute: Attribute) -> str:
        """Return the text of an attribute."""
        attribute_id = self._attribute_id(attribute)
        if (text := self._texts.get(attribute_id)) is None:
            outer_chunks, self._chunks = self._chunks, []
            super().print_attribute(attribute)
            text = self._texts[attribute_id] = "".join(self._chunks)
            self._chunks = outer_chunks
        return text

    def print_attribute(self, attribute: Attribute) -> None:
        self._chunks.append(self.text(attribute))

    def print_ssa_value(self, value: SSAValue) -> str:
        self._chunks.append(_NAME_MARK)
        self._order.append(self._indices[id(value)])
        return ""

    def print_region(
        self,
        region: Region,
        print_entry_block_args: bool = True,
        print_empty_block: bool = True,
        print_block_terminators: bool = True,
    ) -> None:
        self._end_text()
        self._slots.append(
            _BodySlot(self._regions[id(region)], print_entry_block_args, print_empty_block, print_block_terminators)
        )

    def print_block_name(self, block: Block) -> str:
        self.print_string(_label(block))
        return _label(block)

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        self._chunks.append(text)
