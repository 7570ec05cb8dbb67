"""`fuse-generics`: fuses elementwise producers into the structured op that uses them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlc.ir import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    ArrayAttr,
    Block,
    BlockArgument,
    Context,
    IntegerAttr,
    IteratorTypeAttr,
    Operation,
    SSAValue,
    erase_op,
    func,
    i64,
    index,
    linalg,
    tensor,
)
from dlc.passes.base import KernelPass
from dlc.passes.linalg.linalg_builder import emit_index_expression, shape
from dlc.passes.linalg.source_reads import standalone_dims
from dlc.passes.structured import INDEX_ARITHMETIC_OPS, ConstantPool, OpBuilder
from dlc.passes.types import map_attribute, segments
from dlc.shapes.dims import Dim, Size

_TENSOR_OPS = (
    linalg.GenericOp,
    linalg.FillOp,
    tensor.EmptyOp,
    tensor.ExtractSliceOp,
    tensor.InsertSliceOp,
    tensor.ExpandShapeOp,
    tensor.CollapseShapeOp,
)


@dataclass(frozen=True)
class FuseGenericsPass(KernelPass):
    """Inlines an elementwise structured op into the only structured op that uses its result.

        %a = linalg.generic ins(%x, %y) { addf }
        %r = linalg.generic ins(%a) { maximumf }
      →
        %r = linalg.generic ins(%x, %y) { addf; maximumf }

    A producer is inlined only if each of its elements is still computed once: every iterator of the consumer must be one of
    the producer's. So a producer is not inlined into a contraction, a window, or a consumer that broadcasts it. Two kinds of
    producers are recomputed in several consumers: an integer function of the indices alone, and a row of symbolic size that
    the kernel reduces, because a kernel has no local buffer for such a row. Rows with mathematical functions are recomputed
    only if no result of the kernel can store them.
    Contractions and reductions are never inlined: tiling fuses them with their consumers. Erases ops on tensors whose results
    are unused.
    """

    name = "fuse-generics"

    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        constants = ConstantPool(kernel)
        reduced_sizes = _symbolic_reduced_sizes(kernel.body.block)
        for op in reversed(list(kernel.body.block.ops)):
            if op.parent is None:
                continue
            if isinstance(op, _TENSOR_OPS) and not op.results[0].first_use:
                erase_op(op, is_unused=False)
            elif isinstance(op, linalg.GenericOp):
                consumer = op
                while (producer := _fusible_producer(consumer, reduced_sizes)) is not None:
                    consumer = _inline(producer, consumer, constants)


def _symbolic_reduced_sizes(block: Block) -> set[Size]:
    """Return the symbolic extents of reductions."""
    sizes = set[Size]()
    for op in block.ops:
        if isinstance(op, linalg.GenericOp):
            sizes |= {size for d, size in _extents(op).items() if op.iterator_types.data[d] != _PARALLEL}
    return {size for size in sizes if isinstance(size, Dim)}


def _fusible_producer(consumer: linalg.GenericOp, reduced_sizes: set[Size]) -> linalg.GenericOp | None:
    """Return the producer of an input that can be inlined; a clone for this consumer if it is recomputed in others.

    The last producer is recomputed first: its inputs are then inlined once, for it and for the consumer.
    """
    recomputed_producers: dict[linalg.GenericOp, AffineMap] = {}
    maps = [m.data for m in consumer.indexing_maps]
    for value, map_ in zip(consumer.inputs, maps, strict=False):
        producer = value.owner
        if not isinstance(producer, linalg.GenericOp) or not _is_elementwise(producer):
            continue
        if standalone_dims(_fused_maps(producer, consumer, value, map_)) != set(range(map_.num_dims)):
            continue
        if _depends_only_on_indices(producer) and _is_elementwise(consumer):
            return _clone_for_consumer(producer, consumer, map_)
        reads_once = _visits_once(map_, _extents(consumer))
        if not reads_once or any(m != map_ for v, m in zip(consumer.inputs, maps, strict=False) if v is value):
            continue
        if all(use.operation is consumer and use.index < len(consumer.inputs) for use in value.uses):
            return producer
        if not reduced_sizes.isdisjoint(shape(value)) and _is_recomputed(producer):
            recomputed_producers[producer] = map_
    if not recomputed_producers:
        return None
    last = max(recomputed_producers, key=_block_of(consumer).get_operation_index)
    return _clone_for_consumer(last, consumer, recomputed_producers[last])


def _is_recomputed(op: linalg.GenericOp) -> bool:
    """Return whether an elementwise op with a local result is plain arithmetic, or no result of the kernel can store it."""
    if not isinstance(op.outputs[0].owner, tensor.EmptyOp):
        return False
    return not _has_functions(op) or all(_stored_input(use.operation) is not op.results[0] for use in op.results[0].uses)


def _has_functions(op: linalg.GenericOp) -> bool:
    """Return whether an elementwise op has mathematical functions."""
    *body, _ = op.body.block.ops
    return not all(o.name.startswith("arith.") for o in body)


def _stored_input(op: Operation) -> SSAValue | None:
    """Return the first local input with mathematical functions that the result of an elementwise op can store before it."""
    if not isinstance(op, linalg.GenericOp) or not _is_elementwise(op) or not isinstance(op.outputs[0], BlockArgument):
        return None
    for value in op.inputs:
        producer = value.owner
        if not isinstance(producer, linalg.GenericOp) or value.type != op.outputs[0].type or not _is_elementwise(producer):
            continue
        if isinstance(producer.outputs[0].owner, tensor.EmptyOp) and _has_functions(producer):
            return value
    return None


def _depends_only_on_indices(op: Operation | Block) -> bool:
    """Return whether an elementwise op is an integer function of the indices alone."""
    if not isinstance(op, linalg.GenericOp) or not _is_elementwise(op):
        return False
    *body, _ = op.body.block.ops
    return all(isinstance(o, INDEX_ARITHMETIC_OPS) for o in body) and all(_depends_only_on_indices(v.owner) for v in op.inputs)


def _clone_for_consumer(producer: linalg.GenericOp, consumer: linalg.GenericOp, map_: AffineMap) -> linalg.GenericOp:
    """Clone a producer for a consumer that reads it through this map."""
    copy = producer.clone()
    _block_of(consumer).insert_op_before(copy, consumer)
    for k, (value, map_attr) in enumerate(zip(consumer.inputs, consumer.indexing_maps, strict=False)):
        if value is producer.results[0] and map_attr.data == map_:
            consumer.operands[k] = copy.results[0]
    return copy


def _fused_maps(
    producer: linalg.GenericOp, consumer: linalg.GenericOp, value: SSAValue, map_: AffineMap
) -> Iterator[AffineMap]:
    """Yield the maps of the fused op: those of the producer's inputs composed with `map_`, and the consumer's others."""
    # The producer's output map is the identity: its iterators are the indices that the consumer uses.
    yield from (m.data.compose(map_) for _, m in zip(producer.inputs, producer.indexing_maps, strict=False))
    yield from (m.data for v, m in zip(consumer.operands, consumer.indexing_maps, strict=True) if v is not value)


_PARALLEL = IteratorTypeAttr.parallel()


def _is_elementwise(op: linalg.GenericOp) -> bool:
    """Return whether each result element is computed from its index and inputs alone, in one iteration."""
    output = op.indexing_maps.data[-1].data
    parallel = all(t == _PARALLEL for t in op.iterator_types)
    return parallel and output == AffineMap.identity(output.num_dims) and not op.body.block.args[-1].first_use


def _extents(op: linalg.GenericOp) -> dict[int, Size]:
    """Return the extents of the iterators that are a map result by themselves."""
    extents: dict[int, Size] = {}
    for value, map_ in zip(op.operands, op.indexing_maps, strict=True):
        for expression, size in zip(map_.data.results, shape(value), strict=True):
            if isinstance(expression, AffineDimExpr):
                extents[expression.position] = size
    return extents


def _visits_once(map_: AffineMap, extents: dict[int, Size]) -> bool:
    """Return whether no two iterations read the same element: each iterator of extent > 1 is a map result by itself."""
    standalone_dims = {i for e in map_.results if (i := _only_iterator(e)) is not None}
    return all(i in standalone_dims or extents.get(i) == 1 for i in range(map_.num_dims))


def _only_iterator(expression: AffineExpr) -> int | None:
    """Return the iterator i of `±i·c + d`; None for other expressions."""
    match expression:
        case AffineDimExpr(position):
            return position
        case AffineBinaryOpExpr(AffineBinaryOpKind.Add | AffineBinaryOpKind.Mul, inner, AffineConstantExpr()):
            return _only_iterator(inner)
        case _:
            return None


def _inline(producer: linalg.GenericOp, consumer: linalg.GenericOp, constants: ConstantPool) -> linalg.GenericOp:
    """Inline the producer's scalar code before the consumer's; return the fused op."""
    value, block = producer.results[0], consumer.body.block
    first = block.first_op
    assert first is not None
    maps = [m.data for m in consumer.indexing_maps]
    arguments = dict(zip(zip(consumer.inputs, maps, strict=False), block.args, strict=False))
    map_ = next(m for v, m in arguments if v is value)

    for v, m, inner in zip(producer.inputs, producer.indexing_maps, producer.body.block.args, strict=False):
        access = (v, m.data.compose(map_))
        if access not in arguments:
            arguments[access] = block.insert_arg(inner.type, len(block.args) - 1)
        inner.replace_all_uses_with(arguments[access])
    builder = OpBuilder(constants, block, producer.location, anchor=first)
    result: SSAValue = value
    for op in list(producer.body.block.ops):
        op.detach()
        match op:
            case linalg.YieldOp():
                result = op.operands[0]
                op.erase()
            case linalg.IndexOp():
                op.results[0].replace_all_uses_with(_emit_index(builder, map_.results[op.dim.value.data]))
                op.erase()
            case _:
                block.insert_op_before(op, first)
    for access in [a for a in arguments if a[0] is value]:
        argument = arguments.pop(access)
        argument.replace_all_uses_with(result)
        block.erase_arg(argument)

    fused = linalg.GenericOp.create(
        operands=[*(v for v, _ in arguments), *consumer.outputs],
        result_types=consumer.result_types,
        properties={
            **consumer.properties,
            "indexing_maps": ArrayAttr([map_attribute(m) for m in (*(m for _, m in arguments), maps[-1])]),
            **segments(len(arguments), 1),
        },
        attributes=consumer.attributes,
        regions=[consumer.detach_region(consumer.body)],
    )
    fused.results[0].name_hint = consumer.results[0].name_hint
    OpBuilder(constants, _block_of(consumer), consumer.location, anchor=consumer).insert(fused)
    consumer.results[0].replace_all_uses_with(fused.results[0])
    erase_op(consumer, is_unused=False)
    erase_op(producer, is_unused=False)
    return fused


def _emit_index(builder: OpBuilder, expression: AffineExpr) -> SSAValue:
    """Emit the value of an affine index expression inside a body."""
    iterators = {
        d: builder.op(linalg.IndexOp.create(properties={"dim": IntegerAttr(d, i64)}, result_types=[index]))
        for d in sorted(expression.used_dims())
    }
    return emit_index_expression(builder.op, builder.constants, expression, iterators)


def _block_of(op: Operation) -> Block:
    assert op.parent is not None
    return op.parent
