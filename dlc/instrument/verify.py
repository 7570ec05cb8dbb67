"""Verification of a module between passes.

Checked: every op's own constraints (for `dl` ops, that their types are the inferred ones), that definitions dominate uses,
that symbols resolve, that kernels are given what they take, and that only the ops exist which the stage allows. Not checked:
that two stages compute the same (the reference evaluator does that), and sizes inside `memref.subview` and slices, which
xDSL does not verify.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import TypeAlias, cast

from dlc.dialects import host
from dlc.dialects.dl.base import Tensor, shape_of
from dlc.dialects.dl.interfaces import storage_type
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.sizes import sizes_of, symbol
from dlc.dims import Size, substitute
from dlc.errors import CompileError
from dlc.ir import (
    DYNAMIC_INDEX,
    Attribute,
    DominanceInfo,
    IndexType,
    IsolatedFromAbove,
    MemRefType,
    ModuleOp,
    NoTerminator,
    Operation,
    Region,
    SSAValue,
    SymbolOpInterface,
    SymbolRefAttr,
    SymbolUserOpInterface,
    TensorType,
    VerifyException,
    func,
    kinds_in,
    with_regions,
)
from dlc.passes.base import Stage, kernels_of

# References to arrays of the weights store, which is beside the module.
_STORE_REFERENCES = ("dl.weight", "host.weight")


# A shape, and what elements are in memory.
_Form: TypeAlias = "tuple[tuple[Size, ...], Attribute]"
# An op and all that its verification looks at: where it stands, operands and their types, results, attributes, its regions.
_Contents = tuple[Operation, *tuple[object, ...]]


class Verifier:
    """Verifies a module between passes: only what has changed since the last time, which is little, or nothing."""

    def __init__(self) -> None:
        self._verified: dict[int, _Contents] = {}

    def verify(self, module: ModuleOp) -> None:
        """Raises VerifyException for a module that is malformed."""
        contents: dict[int, _Contents] = {}
        _add_contents(module, contents)
        if contents == self._verified:
            return
        alone = (id(op) for op, *_ in contents.values() if _looks_at_nothing_else(op))
        verify(module, {k for k in alone if contents[k] == self._verified.get(k)})
        self._verified = contents


def verify(module: ModuleOp, right: Collection[int] = ()) -> None:
    """Raises VerifyException for a module that is malformed; `right` are the ids of ops that are right by themselves."""
    try:
        _verify_op(module, right)
    except ValueError as error:  # operands that a parsed text leaves without a definition have no owner to ask for
        raise VerifyException(str(error)) from error
    for op in module.body.ops:
        if not op.has_trait(SymbolOpInterface):
            raise VerifyException(f"{op.name} stands outside of every function:\n{op}")
        if isinstance(op, func.FuncOp) and len(op.body.blocks) != 1:
            count = len(op.body.blocks) or "no"
            raise VerifyException(f"function @{op.sym_name.data} has {count} blocks; expected one: loops and branches are ops")
    for region in module.regions:
        _verify_dominance(region, set())
    _verify_symbols(module)


def verify_legal(module: ModuleOp, stage: Stage) -> None:
    """Raises CompileError unless `module` holds only ops that may exist after a stage."""
    bad = sorted(set(illegal_ops(module, stage)))
    if bad:
        raise CompileError(f"after stage {stage.name} there should be none of: {', '.join(bad)}")


def illegal_ops(module: ModuleOp, stage: Stage) -> Iterator[str]:
    """Names of the ops that a stage does not allow."""
    inside = {id(kernel) for kernel in kernels_of(module)}
    pending: list[tuple[Operation, frozenset[str] | None]] = [(module, stage.host)]
    while pending:
        op, legal = pending.pop()
        if id(op) in inside or isinstance(op, KernelOp):
            legal = stage.kernels
        if legal is None:
            continue
        if not _is_among(op.name, legal):
            yield op.name
        for block in [block for region in op.regions for block in region.blocks]:
            held = with_regions(block)
            strange = [kind for kind in kinds_in(block) if not _is_among(kind.name, legal)]
            if strange:
                # Those with regions may be kernels, for which other rules hold.
                others = Counter(kinds_in(block)) - Counter(map(type, held))
                yield from (kind.name for kind in strange if kind in others)
            pending += [(inner, legal) for inner in held]


@cache
def _is_among(name: str, legal: frozenset[str]) -> bool:
    """Whether an op or its dialect is one of those that a stage names."""
    return name in legal or name.partition(".")[0] in legal


def _looks_at_nothing_else(op: Operation) -> bool:
    """Whether an op's verification looks at its contents only: not into regions, at the one that its block is in, or at what
    a symbol names.
    """
    return not op.regions and op.next_op is not None and not op.has_trait(SymbolUserOpInterface)


def _add_contents(op: Operation, contents: dict[int, _Contents]) -> None:
    types = [v.type for v in (*op.operands, *op.results)]
    place = op.parent_op(), op.next_op is None
    held = *place, tuple(op.operands), types, tuple(op.properties.items()), tuple(op.attributes.items()), tuple(op.successors)
    blocks = [(r, block, [a.type for a in block.args], tuple(block.ops)) for r in op.regions for block in r.blocks]
    contents[id(op)] = op, *held, blocks
    for _, _, _, inside in blocks:
        for each in inside:
            _add_contents(each, contents)


def _verify_op(op: Operation, right: Collection[int]) -> None:
    for region in op.regions:
        blocks = list(region.blocks)
        for block in blocks:
            if block.parent is not region or any(inside.parent is not block for inside in block.ops):
                raise VerifyException(f"{op.name} holds ops that are said to be elsewhere")
            if block.is_empty and len(blocks) == 1 and not op.has_trait(NoTerminator):
                raise VerifyException(f"{op.name} has a block that is empty")
            for inside in block.ops:
                _verify_op(inside, right)
    if id(op) not in right:
        op.verify(verify_nested_ops=False)


def _verify_dominance(region: Region, visible: set[SSAValue]) -> None:
    # A block sees what was visible where its region's op stands, and all of every block that strictly dominates it.
    blocks = list(region.blocks)
    dominance = DominanceInfo(region) if len(blocks) > 1 else None
    for block in blocks:
        seen = visible
        if dominance is not None:
            above = [b for b in blocks if dominance.strictly_dominates(b, block)]
            seen = visible.union(*(b.args for b in above), *(op.results for b in above for op in b.ops))
        own: set[SSAValue] = set(block.args)
        seen |= own
        for op in block.ops:
            _verify_op_dominance(op, seen)
            own.update(op.results)
            seen.update(op.results)
        seen -= own


def _verify_op_dominance(op: Operation, visible: set[SSAValue]) -> None:
    for k, operand in enumerate(op.operands):
        if operand not in visible:
            raise VerifyException(f"{op.name}: operand {k} is used where its definition does not dominate:\n{op}")
    for region in op.regions:
        _verify_dominance(region, set[SSAValue]() if op.has_trait(IsolatedFromAbove) else visible)


def _verify_symbols(module: ModuleOp) -> None:
    defined: dict[str, Operation] = {}
    for op in module.walk():
        named = op.get_trait(SymbolOpInterface)
        if named is not None and (name := named.get_sym_attr_name(op)) is not None:
            defined[name.data] = op
    for op in module.walk():
        if op.name in _STORE_REFERENCES:
            continue
        for value in (*op.properties.values(), *op.attributes.values()):
            if isinstance(value, SymbolRefAttr) and value.string_value().rpartition(".")[2] not in defined:
                raise VerifyException(f"{op.name}: nothing is called {value}")
        if isinstance(op, DispatchOp | host.LaunchOp):
            if op.symbol not in defined:
                raise VerifyException(f"{op.name}: a kernel is called by its own name, not {op.callee}")
            _verify_given(op, defined[op.symbol])


def _verify_given(op: DispatchOp | host.LaunchOp, kernel: Operation) -> None:
    """That a kernel is given what it takes: so many values, of its shapes with these sizes for its symbols, of its elements."""
    meanings = op.sizes.sizes if op.sizes is not None else ()
    sizes = {symbol(k): size for k, size in enumerate(meanings)}
    given = [_form(v.type) for v in (*op.operands, *op.results)]
    taken = [(tuple(substitute(s, sizes) for s in shape), element) for shape, element in _taken(kernel)]
    if len(given) != len(taken) or not all(map(_agree, given, taken)):
        raise VerifyException(f"{op.name} does not give @{op.symbol} what it takes (C1): {_said(taken)}\n{op}")


def _taken(kernel: Operation) -> list[_Form]:
    """What a kernel reads and then what it writes."""
    if isinstance(kernel, KernelOp):
        return [_form(t) for t in (*kernel.function_type.inputs, *kernel.function_type.outputs)]
    if not isinstance(kernel, func.FuncOp) or len(kernel.body.blocks) != 1:
        raise VerifyException(f"what is called as a kernel is none, but {kernel.name}, or has no body of one block:\n{kernel}")
    forms = [(a, _form(a.type)) for a in kernel.body.block.args if not isinstance(a.type, IndexType)]
    return [(sizes_of(a) if DYNAMIC_INDEX in shape else shape, element) for a, (shape, element) in forms]


def _agree(given: _Form, taken: _Form) -> bool:
    """Whether a value may be what a kernel takes: buffers do not say all of their sizes."""
    (shape, element), (sizes, taken_element) = given, taken
    known = len(shape) == len(sizes) and all(s in {DYNAMIC_INDEX, t} for s, t in zip(shape, sizes, strict=True))
    return known and element == taken_element


def _form(type_: Attribute) -> _Form:
    """The shape of a tensor or a buffer, and what its elements are in memory."""
    if isinstance(type_, TensorType):
        tensor = cast("Tensor", type_)
        return shape_of(tensor), storage_type(tensor.element_type)
    if isinstance(type_, MemRefType):
        buffer = cast("MemRefType[Attribute]", type_)
        return buffer.get_shape(), storage_type(buffer.element_type)
    return (), type_


def _said(forms: Sequence[_Form]) -> str:
    return ", ".join(f"{'x'.join(map(str, shape))} of {element}" for shape, element in forms)
