"""Verify a module between passes.

The verifier checks every op's own constraints (for `dl` ops, that their types are the inferred ones), dominance, symbols, the
arguments of kernels, and that all ops are legal after the stage. It does not check that two stages compute the same (the
reference evaluator does that), nor the sizes inside `memref.subview` and slices, which xDSL does not verify.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import TypeAlias, cast

from dlc.dialects import host
from dlc.dialects.dl.base import DlOp, Tensor, shape_of
from dlc.dialects.dl.interfaces import storage_type
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.sizes import sizes_of, symbol
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
    op_classes_in,
    ops_with_regions,
)
from dlc.passes.base import Stage, kernels_of
from dlc.shapes.dims import Size, substitute

# References to arrays of the weights store, which is not part of the module.
_STORE_REFERENCES = ("dl.weight", "host.weight")


_type_of = attrgetter("type")
# A shape, and the element type in memory.
_ValueShape: TypeAlias = "tuple[tuple[Size, ...], Attribute]"
# An op and the inputs of its verification: position, operands and their types, results, attributes, regions.
_Contents = tuple[Operation, *tuple[object, ...]]


class Verifier:
    """Verify a module between passes incrementally: only what has changed since the last call."""

    def __init__(self) -> None:
        self._verified: dict[int, _Contents] = {}

    def verify(self, module: ModuleOp) -> None:
        """Raise VerifyException if the module is malformed."""
        contents = _contents_of(module)
        # Most passes change nothing: compare in one step.
        if contents != self._verified:
            same = {key for key, entry in contents.items() if self._verified.get(key) == entry}
            verify(module, _unchanged_ops(contents, same))
            self._verified = contents


def verify(module: ModuleOp, verified: Collection[int] = ()) -> None:
    """Raise VerifyException if the module is malformed; ops with an id in `verified`, and ops within them, are valid."""
    try:
        _verify_op(module, verified)
    except ValueError as error:  # An operand without a definition in a parsed text has no owner.
        raise VerifyException(str(error)) from error
    for op in module.body.ops:
        if not op.has_trait(SymbolOpInterface):
            raise VerifyException(f"{op.name} is outside of every function:\n{op}")
        if isinstance(op, func.FuncOp) and len(op.body.blocks) != 1:
            count = len(op.body.blocks) or "no"
            raise VerifyException(f"function @{op.sym_name.data} has {count} blocks; expected one: loops and branches are ops")
    for region in module.regions:
        _verify_dominance(region, set())
    _verify_symbols(module)


def verify_legal(module: ModuleOp, stage: Stage) -> None:
    """Raise CompileError if `module` contains ops that are illegal after a stage."""
    illegal = sorted(set(illegal_ops(module, stage)))
    if illegal:
        raise CompileError(f"illegal ops after stage {stage.name}: {', '.join(illegal)}")


def illegal_ops(module: ModuleOp, stage: Stage) -> Iterator[str]:
    """Yield the names of ops that are illegal after a stage."""
    kernel_ids = {id(kernel) for kernel in kernels_of(module)}
    pending: list[tuple[Operation, frozenset[str] | None]] = [(module, stage.host)]
    while pending:
        op, legal = pending.pop()
        if id(op) in kernel_ids or isinstance(op, KernelOp):
            legal = stage.kernels
        if legal is None:
            continue
        if not _is_legal(op.name, type(op), legal):
            yield op.name
        for block in [block for region in op.regions for block in region.blocks]:
            ops_with_bodies = ops_with_regions(block)
            illegal_classes = [op_class for op_class in op_classes_in(block) if not _is_legal(op_class.name, op_class, legal)]
            if illegal_classes:
                # Ops with regions may be kernels, to which other rules apply.
                classes_without_regions = Counter(op_classes_in(block)) - Counter(map(type, ops_with_bodies))
                yield from (op_class.name for op_class in illegal_classes if op_class in classes_without_regions)
            pending += [(inner, legal) for inner in ops_with_bodies]


@cache
def _is_legal(name: str, op_class: type[Operation], legal: frozenset[str]) -> bool:
    """Return whether an op or its dialect is one of the legal names; the tensor ops of plug-ins are legal where `dl` is."""
    return name in legal or ("dl" if issubclass(op_class, DlOp) else name.partition(".")[0]) in legal


def _contents_of(module: ModuleOp) -> dict[int, _Contents]:
    """Return the inputs of the verification of each op by its id, inner ops after outer ones."""
    contents: dict[int, _Contents] = {}
    pending: list[Sequence[Operation]] = [(module,)]
    for ops in pending:
        for op in ops:
            operands, is_last = op.operands, op.next_op is None
            blocks: Sequence[object] = ()
            if op.regions:
                blocks = [
                    (region, block, block.arg_types, tuple(block.ops)) for region in op.regions for block in region.blocks
                ]
                pending += [block_ops for _, _, _, block_ops in blocks]
            contents[id(op)] = (
                op,
                op.parent,
                is_last,
                operands,
                *map(_type_of, operands),
                *map(_type_of, op.results),
                # Copies, because dictionaries are changed in place.
                op.properties.copy() if op.properties else None,
                op.attributes.copy() if op.attributes else None,
                # Only terminators have successors.
                tuple(op.successors) if is_last else (),
                blocks,
            )
    return contents


def _unchanged_ops(contents: dict[int, _Contents], same: Collection[int]) -> set[int]:
    """Return the ids of ops whose verification, and that of the ops within them, would repeat the previous one.

    `same` has the ids of ops with the same contents. A terminator depends on its parent too, a user of symbols on the module.
    """
    unchanged: set[int] = set()
    for key in reversed(contents):
        if key in same:
            op = contents[key][0]
            parent = op.parent_op() if op.next_op is None else None
            if (
                (parent is None or id(parent) in same)
                and not _uses_symbols(op.__class__)
                and all([id(inner) in unchanged for region in op.regions for block in region.blocks for inner in block.ops])
            ):
                unchanged.add(key)
    return unchanged


@cache
def _uses_symbols(op_class: type[Operation]) -> bool:
    return op_class.has_trait(SymbolUserOpInterface)


@cache
def _symbol_trait(op_class: type[Operation]) -> SymbolOpInterface | None:
    return op_class.get_trait(SymbolOpInterface)


def _verify_op(op: Operation, verified: Collection[int]) -> None:
    for region in op.regions:
        blocks = list(region.blocks)
        for block in blocks:
            ops = list(block.ops)
            if block.parent is not region or any([inner_op.parent is not block for inner_op in ops]):
                raise VerifyException(f"{op.name} contains ops whose parent is another op")
            if not ops and len(blocks) == 1 and not op.has_trait(NoTerminator):
                raise VerifyException(f"{op.name} has an empty block")
            for inner_op in ops:
                if id(inner_op) not in verified:
                    _verify_op(inner_op, verified)
    op.verify(verify_nested_ops=False)


def _verify_dominance(region: Region, visible: set[SSAValue]) -> None:
    # In a block, the values that are visible at its region's op, and those of all strictly dominating blocks, are visible.
    blocks = list(region.blocks)
    dominance = DominanceInfo(region) if len(blocks) > 1 else None
    for block in blocks:
        defined = visible
        if dominance is not None:
            dominators = [b for b in blocks if dominance.strictly_dominates(b, block)]
            defined = visible.union(*(b.args for b in dominators), *(op.results for b in dominators for op in b.ops))
        block_values: set[SSAValue] = set(block.args)
        defined |= block_values
        for op in block.ops:
            operands = op.operands
            if not defined.issuperset(operands):
                position = [operand in defined for operand in operands].index(False)
                raise VerifyException(f"{op.name}: operand {position} is used where its definition does not dominate:\n{op}")
            for inner_region in op.regions:
                _verify_dominance(inner_region, set[SSAValue]() if op.has_trait(IsolatedFromAbove) else defined)
            block_values.update(op.results)
            defined.update(op.results)
        defined -= block_values


def _verify_symbols(module: ModuleOp) -> None:
    ops = list(module.walk())
    symbols: dict[str, Operation] = {}
    for op in ops:
        symbol_trait = _symbol_trait(op.__class__)
        if symbol_trait is not None and (name := symbol_trait.get_sym_attr_name(op)) is not None:
            symbols[name.data] = op
    for op in ops:
        if op.name in _STORE_REFERENCES:
            continue
        for value in (*op.properties.values(), *op.attributes.values()):
            if isinstance(value, SymbolRefAttr) and value.string_value().rpartition(".")[2] not in symbols:
                raise VerifyException(f"{op.name}: undefined symbol {value}")
        if isinstance(op, DispatchOp | host.LaunchOp):
            if op.symbol not in symbols:
                raise VerifyException(f"{op.name}: expected the symbol of a kernel, got {op.callee}")
            _verify_kernel_arguments(op, symbols[op.symbol])


def _verify_kernel_arguments(op: DispatchOp | host.LaunchOp, kernel: Operation) -> None:
    """Check that a kernel's arguments match its parameters in number, shapes (with these sizes) and element types."""
    size_arguments = op.sizes.sizes if op.sizes is not None else ()
    sizes = {symbol(k): size for k, size in enumerate(size_arguments)}
    arguments = [_value_shape(v.type) for v in (*op.operands, *op.results)]
    parameters = [(tuple(substitute(s, sizes) for s in shape), element) for shape, element in _kernel_parameters(kernel)]
    if len(arguments) != len(parameters) or not all(map(_is_compatible, arguments, parameters)):
        raise VerifyException(
            f"{op.name}: arguments do not match the parameters of @{op.symbol} (C1): expected {_shapes_text(parameters)}\n{op}"
        )


def _kernel_parameters(kernel: Operation) -> list[_ValueShape]:
    """Return the shapes of a kernel's inputs, then of its outputs."""
    if isinstance(kernel, KernelOp):
        return [_value_shape(t) for t in (*kernel.function_type.inputs, *kernel.function_type.outputs)]
    if not isinstance(kernel, func.FuncOp) or len(kernel.body.blocks) != 1:
        raise VerifyException(f"the callee is not a kernel with one block, but {kernel.name}:\n{kernel}")
    shapes = [(a, _value_shape(a.type)) for a in kernel.body.block.args if not isinstance(a.type, IndexType)]
    return [(sizes_of(a) if DYNAMIC_INDEX in shape else shape, element) for a, (shape, element) in shapes]


def _is_compatible(arguments: _ValueShape, parameters: _ValueShape) -> bool:
    """Return whether a value matches a parameter; the sizes of a buffer may be dynamic."""
    (shape, element), (sizes, expected_element) = arguments, parameters
    is_match = len(shape) == len(sizes) and all(s in {DYNAMIC_INDEX, t} for s, t in zip(shape, sizes, strict=True))
    return is_match and element == expected_element


def _value_shape(type_: Attribute) -> _ValueShape:
    """Return the shape of a tensor or buffer type, and the element type in memory."""
    if isinstance(type_, TensorType):
        tensor = cast("Tensor", type_)
        return shape_of(tensor), storage_type(tensor.element_type)
    if isinstance(type_, MemRefType):
        buffer = cast("MemRefType[Attribute]", type_)
        return buffer.get_shape(), storage_type(buffer.element_type)
    return (), type_


def _shapes_text(shapes: Sequence[_ValueShape]) -> str:
    return ", ".join(f"{'x'.join(map(str, shape))} of {element}" for shape, element in shapes)
