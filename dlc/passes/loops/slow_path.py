"""Slow paths of formulas: a branch taken if any element of a vector needs it, per element or for the whole vector.

    %any = vector.reduction <or>, %large : vector<8xi1> into i1
    %y = scf.if %any -> (vector<8xf32>) {
      …operands and results in local arrays…
      scf.for %i = 0 to 8 { scf.if …an element is large… { …the slow path, on scalars… } }
      …
    } else { scf.yield %x }

The fast path costs only a comparison, and long formulas are compiled for one element, not for a whole tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar, cast

from dlc.ir import (
    AffineMap,
    Attribute,
    Block,
    DenseArrayBase,
    IndexType,
    Operation,
    Region,
    SSAValue,
    VectorType,
    arith,
    erase_op,
    i64,
    memref,
    scf,
    vector,
)
from dlc.passes import structured
from dlc.passes.kernel_values import element_of
from dlc.passes.loops.formula import NO_FASTMATH, Bits, Bool, Float, FormulaBuilder, find_format

Values = TypeVar("Values", bound="tuple[Bits | Float, ...]")


def apply_slow_path_per_element(
    condition: Callable[..., Bool], slow_path: Callable[..., Values], operands: Sequence[Bits | Float], fast_values: Values
) -> Values:
    """Return `slow_path(*operands)` for elements whose condition is true, one at a time; `fast_values` for the others."""
    mask = condition(*operands)
    builder = mask.builder
    if isinstance(mask.value.type, VectorType):
        is_any_true = _any(builder, mask.value)
        return _branch(
            builder,
            is_any_true,
            lambda builder_in_branch: _for_each_element(builder_in_branch, condition, slow_path, operands, fast_values),
            fast_values,
        )
    return _branch(
        builder,
        mask.value,
        lambda builder_in_branch: slow_path(*(_rebind(builder_in_branch, x, x.value) for x in operands)),
        fast_values,
    )


def apply_slow_path(
    condition: Callable[..., Bool], slow_path: Callable[..., Values], operands: Sequence[Bits | Float], fast_values: Values
) -> Values:
    """Return `slow_path(*operands)` for all elements if any condition holds; else `fast_values`."""
    mask = condition(*operands)
    builder = mask.builder
    is_any_true = _any(builder, mask.value) if isinstance(mask.value.type, VectorType) else mask.value
    return _branch(
        builder,
        is_any_true,
        lambda builder_in_branch: slow_path(*(_rebind(builder_in_branch, x, x.value) for x in operands)),
        fast_values,
    )


def emit_loop(count: Bits, step_size: int, step: Callable[..., Values], start: Values) -> Values:
    """Emit a loop of ⌈count / step_size⌉ iterations of `step`, from the values `start`; `count` is a scalar."""
    builder = count.builder
    high = builder.insert(arith.IndexCastOp, [count.value], IndexType())
    low, stride = (builder.constants.get(k, IndexType()) for k in (0, step_size))
    terminator = scf.YieldOp()
    body = Block([terminator], arg_types=[IndexType(), *(x.value.type for x in start)])
    body_builder = _builder_before(terminator, builder)
    results = step(*(_rebind(body_builder, x, value) for x, value in zip(start, body.args[1:], strict=True)))
    _replace_yield(body, results)
    op = scf.ForOp(low, high, stride, [x.value for x in start], body)
    return _insert(builder, op, start)


def _branch(
    builder: FormulaBuilder, condition: SSAValue, slow_path: Callable[[FormulaBuilder], Values], fast_values: Values
) -> Values:
    """Emit an if op: the results of `slow_path` where the condition holds, else `fast_values`."""
    terminator = scf.YieldOp()
    slow_block = Block([terminator])
    _replace_yield(slow_block, slow_path(_builder_before(terminator, builder)))
    fast_block = Block([scf.YieldOp(*(x.value for x in fast_values))])
    return _insert(
        builder, scf.IfOp(condition, [x.value.type for x in fast_values], Region(slow_block), Region(fast_block)), fast_values
    )


def _for_each_element(
    builder: FormulaBuilder,
    condition: Callable[..., Bool],
    slow_path: Callable[..., Values],
    operands: Sequence[Bits | Float],
    fast_values: Values,
) -> Values:
    """Return `fast_values` with the elements whose condition holds replaced, by loops over local arrays."""
    constants = structured.ConstantPool(builder.constants.function)
    outer = structured.OpBuilder(constants, builder.block, builder.anchor.location, builder.anchor)
    shape = cast("VectorType[Attribute]", fast_values[0].value.type).get_shape()
    identity, origin = AffineMap.identity(len(shape)), [0] * len(shape)
    arguments, results = ([outer.alloca(element_of(x.value.type), shape) for x in xs] for xs in (operands, fast_values))
    for x, array in zip((*operands, *fast_values), (*arguments, *results), strict=True):
        outer.transfer_write(x.value, array, origin, identity)
    inner, index = outer, list[SSAValue]()
    for size in shape:
        loop = inner.loop(0, size, 1)
        terminator = scf.YieldOp()
        loop.body.block.add_op(terminator)
        inner = structured.OpBuilder(constants, loop.body.block, builder.anchor.location, terminator)
        index.append(loop.body.block.args[0])

    def element(x: Bits | Float, array: SSAValue) -> Bits | Float:
        assert inner.anchor is not None
        value = inner.op(memref.LoadOp.create(operands=[array, *index], result_types=[element_of(x.value.type)]))
        return _rebind(_builder_before(inner.anchor, builder), x, value)

    scalars = [element(x, array) for x, array in zip(operands, arguments, strict=True)]
    then_builder = inner.branch(condition(*scalars).value)
    assert then_builder.anchor is not None
    builder_in_branch = _builder_before(then_builder.anchor, builder)
    for x, array in zip(slow_path(*(_rebind(builder_in_branch, x, x.value) for x in scalars)), results, strict=True):
        then_builder.insert(memref.StoreOp.create(operands=[x.value, array, *index]))
    loaded_results = (outer.transfer_read(array, origin, tuple(shape), identity) for array in results)
    return cast(Values, tuple(_rebind(builder, x, value) for x, value in zip(fast_values, loaded_results, strict=True)))


def _rebind(builder: FormulaBuilder, like: Bits | Float, value: SSAValue) -> Bits | Float:
    """Return a value as bits or floats with another builder; its type gives the shape."""
    is_element = value.type != like.value.type
    return type(like)(builder, find_format(element_of(like.format.float_type)) if is_element else like.format, value)


def _builder_before(terminator: Operation, builder: FormulaBuilder) -> FormulaBuilder:
    """Return a builder before the terminator of another block."""
    terminator.location = builder.anchor.location
    return FormulaBuilder(terminator, builder.constants, fused=builder.fused, has_ldexp=builder.has_ldexp)


def _replace_yield(block: Block, results: Sequence[Bits | Float]) -> None:
    """Replace the empty yield of a block by one of results."""
    last = block.last_op
    assert last is not None
    block.insert_op_before(scf.YieldOp(*(x.value for x in results)), last)
    erase_op(last)


def _insert(builder: FormulaBuilder, op: scf.ForOp | scf.IfOp, like: Values) -> Values:
    """Insert an op; return its results with the types of `like`."""
    op.location = builder.anchor.location
    builder.block.insert_op_before(op, builder.anchor)
    return cast(Values, tuple(type(x)(builder, x.format, value) for x, value in zip(like, op.results, strict=True)))


def _any(builder: FormulaBuilder, value: SSAValue) -> SSAValue:
    """Return whether any element of a vector of booleans is true."""
    vector_t = cast("VectorType[Attribute]", value.type)
    *leading, size = vector_t.get_shape()
    t = VectorType(vector_t.element_type, [size])
    rows = [value]
    if leading:
        positions = (DenseArrayBase.from_list(i64, index) for index in product(*map(range, leading)))
        rows = [builder.insert(vector.ExtractOp, [value], t, {"static_position": p}) for p in positions]
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=False)
        rows = [builder.insert(arith.OrIOp, pair, t) for pair in pairs] + rows[len(rows) & ~1 :]
    kind = vector.CombiningKindAttr(vector.CombiningKindFlag.OR)
    return builder.insert(vector.ReductionOp, rows, vector_t.element_type, {"kind": kind, "fastmath": NO_FASTMATH})
