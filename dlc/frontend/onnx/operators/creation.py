"""Operators that create tensors from attributes and shapes."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import element_type, is_float, is_integer
from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.onnx.values import StringTensor
from dlc.frontend.problems import NodeProblem
from dlc.ir import i64
from dlc.shapes.dims import Dim, Size

table = ConverterTable()


@table("Constant")
def constant(node: OnnxNode) -> ImportedValue:
    # Named by its output: such nodes often have no name.
    name = node.proto.output[0]
    if node.has_attribute("value"):
        value = node.constant_attribute("value")
        value.name = name
        return value
    if node.has_attribute("sparse_value"):
        return node.emit.constant(node.sparse_tensor("sparse_value"), name=name)
    if node.has_attribute("value_float"):
        return node.emit.constant(node.real("value_float"), np.float32, name)
    if node.has_attribute("value_floats"):
        return node.emit.constant(node.reals("value_floats"), np.float32, name)
    if node.has_attribute("value_int"):
        return node.emit.constant(node.integer("value_int"), np.int64, name)
    if node.has_attribute("value_ints"):
        return node.emit.constant(node.integers("value_ints"), np.int64, name)
    if node.has_attribute("value_string"):
        return StringTensor.from_strings(node.emit, np.asarray(node.string("value_string"), object), name)
    if node.has_attribute("value_strings"):
        return StringTensor.from_strings(node.emit, np.asarray(node.strings("value_strings", ()), object), name)
    present = ", ".join(a.name for a in node.proto.attribute)
    node.ignore_attributes(*(a.name for a in node.proto.attribute))
    raise NodeProblem("attribute", f"expected a numeric or string constant, got {present or 'no value'}")


@table("ConstantOfShape")
def constant_of_shape(node: OnnxNode) -> ImportedValue:
    value = node.array_attribute("value") if node.has_attribute("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise ModelError(f"{node.description}: its value must have one element, got {value.size}")
    return node.emit.broadcast(node.emit.constant(value.reshape(())), node.runtime_sizes(0, "shape"))


@table("Range")
def range_(node: OnnxNode) -> ImportedValue:
    emit, element = node.emit, node[0].element_type
    if any(node[k].element_type != element for k in (1, 2)):
        raise ModelError(f"{node.description}: start, limit and delta must be of one type")
    if any(node[k].constant_value is None for k in range(3)):
        return _runtime_range(node)
    if not node.constant_input(2, "delta").all():
        raise ModelError(f"{node.description}: its delta is 0")
    if is_float(element):
        bounds = [node.constant_input(k, "bounds") for k in range(3)]
        start, limit, delta = (b.reshape(()) for b in bounds)
        if not np.isfinite((start, limit, delta)).all():
            raise ModelError(f"{node.description}: its bounds {start}, {limit} and {delta} are not finite")
        count: Size = max(int(np.ceil((limit - start) / delta)), 0)
        return emit.iota(count, element, float(start), float(delta))
    (first,), (end,), step = node.sizes(0, "start"), node.sizes(1, "limit"), int(node.constant_scalar(2, "delta"))
    span = end - first if step > 0 else first - end
    count = emit.nonnegative_size(-(-span // abs(step)))
    if isinstance(first, Dim):
        steps = emit.iota(count, element, 0, step)
        return emit(dl.AddOp, steps, emit.cast(emit.sizes(first), element))
    return emit.iota(count, element, first, step)


def _runtime_range(node: OnnxNode) -> ImportedValue:
    """Emit a range whose length depends on data: ⌈(limit − start) / delta⌉."""
    emit, element = node.emit, node[0].element_type
    start, limit, delta = (emit.reshape(node[k], ()) for k in range(3))
    if (
        start.constant_value is None
        or delta.constant_value is None
        or start.constant_value != 0
        or delta.constant_value != 1
        or not is_integer(element)
    ):
        compute_type = element_type(np.float64 if is_float(element) else np.int64)
        first, end, step = (emit.cast(v, compute_type) for v in (start, limit, delta))
        emit.require(emit(dl.NotEqualOp, step, emit.scalar(0, step)), f"{node.description}: its delta is 0")
        if is_float(element):
            limit = emit(dl.NegOp, emit(dl.FloorOp, emit(dl.DivOp, emit(dl.SubOp, first, end), step)))
            limit = emit.cast(limit, element_type(np.int64))
        else:
            limit = _integer_count(emit, first, end, step)
    steps = emit.iota(emit.scalar_as_size(limit), element)
    return emit(dl.AddOp, start, emit(dl.MulOp, steps, delta))


def _integer_count(emit: Emitter, start: ImportedValue, limit: ImportedValue, delta: ImportedValue) -> ImportedValue:
    """Return max(⌈(limit − start) / delta⌉, 0) for rank-0 i64 values.

    The distance is computed modulo 2⁶⁴, in which the distance of two ordered integers is exact.
    """
    is_ascending, unsigned = emit(dl.GreaterOp, delta, emit.scalar(0, delta)), element_type(np.uint64)
    low, high = emit(dl.SelectOp, is_ascending, start, limit), emit(dl.SelectOp, is_ascending, limit, start)
    stride = emit.cast(emit(dl.SelectOp, is_ascending, delta, emit(dl.NegOp, delta)), unsigned)
    one, zero = emit.scalar(1, unsigned), emit.scalar(0, i64)
    distance = emit(dl.SubOp, emit.cast(high, unsigned), emit.cast(low, unsigned))
    count = emit(dl.AddOp, emit(dl.FloordivOp, emit(dl.SubOp, distance, one), stride), one)
    count = emit(dl.MinimumOp, count, emit.scalar(2**63 - 1, unsigned))
    return emit(dl.SelectOp, emit(dl.LessOp, low, high), emit.cast(count, i64), zero)


@table("EyeLike")
def eye_like(node: OnnxNode) -> ImportedValue:
    emit, x = node.emit, node[0]
    if x.rank != 2:
        raise ModelError(f"{node.description}: expected a matrix, got rank {x.rank}")
    element = element_type(dtype_of(node.integer("dtype"))) if node.has_attribute("dtype") else x.element_type
    rows = emit.reshape(emit.iota(x.shape[0], start=node.integer("k", 0)), (x.shape[0], 1))
    return emit.cast(emit(dl.EqualOp, emit.iota(x.shape[1]), rows), element)


@table("OneHot")
def one_hot(node: OnnxNode) -> ImportedValue:
    emit, indices, (depth,) = node.emit, node[0], node.runtime_sizes(1, "depth")
    axis = node.axis(node.integer("axis", -1), indices.rank + 1)
    negative = emit(dl.LessOp, indices, emit.scalar(0, indices))
    # Of 64 bits, as depth may exceed the indices' type.
    indices = emit.cast(indices, i64)
    indices = emit(dl.SelectOp, negative, emit(dl.AddOp, indices, emit.sizes(depth)), indices)
    classes = emit.iota(depth)
    # The classes broadcast along the new axis.
    columns = emit.reshape(classes, (depth, *(1,) * (indices.rank - axis)))
    hot = emit(dl.EqualOp, emit.reshape(indices, (*indices.shape[:axis], 1, *indices.shape[axis:])), columns)
    off, on = (emit.reshape(emit.slice(node[2], 0, k, k + 1), ()) for k in (0, 1))
    return emit(dl.SelectOp, hot, on, off)
