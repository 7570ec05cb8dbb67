"""The scalar bodies and affine maps of ops agree with their references."""

from __future__ import annotations

import numpy as np
import pytest

import dlc.backends.reference  # noqa: F401 - registers the rules of arith, math and tensor
from dlc.backends.reference.evaluation_context import EvaluationContext, Frame
from dlc.dialects.dl.base import element_type_of, is_storage_only, shape_of
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.interfaces import Body, DataMovement, Elementwise, GatherLike, Reduction, storage_type
from dlc.dialects.dl.scalar import wide_float
from dlc.ir import Attribute, Block, SSAValue, TensorType, func, index
from tests.ops.programs import module_of, op_of
from tests.ops.sample import Sample, assert_close
from tests.ops.samples import SAMPLES


def samples_of(interface: type):
    chosen = [s for s in SAMPLES if issubclass(s.op, interface)]
    return pytest.mark.parametrize("sample", chosen, ids=[s.name for s in chosen])


def to_storage(array: np.ndarray) -> np.ndarray:
    """Return an array as kernels store it: unsigned integers and storage-only types by their bits."""
    return array.view(f"i{array.itemsize}") if is_stored_by_bits(array.dtype) else array


def is_stored_by_bits(dtype: np.dtype) -> bool:
    return dtype.kind == "u" or is_storage_only(element_type(dtype))


def evaluate_body(block: Block, arguments: list[np.ndarray], points: int) -> np.ndarray:
    """Return the value that a block of scalar code yields for each element."""
    with np.errstate(all="ignore"):
        (result,) = Frame(EvaluationContext({}, {}), points).run(block, arguments)
    return np.asarray(result)


def assert_expected(sample: Sample, elements: np.ndarray) -> None:
    result = op_of(module_of(sample)).results[0]
    dtype = numpy_dtype(element_type_of(result))
    got = np.broadcast_to(elements, (int(np.prod(shape_of(result))),)).reshape(shape_of(result))
    got = got.view(dtype) if is_stored_by_bits(dtype) else got
    # Formulas may round differently from the reference, by a few ulp of the result.
    tolerance = max(sample.tolerance, {2: 1e-3, 4: 1e-6, 8: 1e-14}.get(dtype.itemsize, 0.0) if dtype.kind in "fV" else 0.0)
    assert_close(got, sample.expected_results([dtype])[0], tolerance)


@samples_of(Elementwise)
def test_scalar(sample: Sample) -> None:
    op = op_of(module_of(sample))
    assert isinstance(op, Elementwise)
    block = Block(arg_types=[storage_type(element_type_of(v)) for v in op.operands])
    block.add_op(func.ReturnOp(op.scalar(Body(block), *block.args)))
    operands = [to_storage(o).reshape(-1) for o in np.broadcast_arrays(*sample.operands)]
    assert_expected(sample, evaluate_body(block, operands, operands[0].size))


@samples_of(GatherLike)
def test_gather(sample: Sample) -> None:
    op = op_of(module_of(sample))
    assert isinstance(op, GatherLike)
    shape = shape_of(op.results[0])
    if 0 in shape:
        return
    sources: list[Attribute] = [TensorType(storage_type(element_type_of(v)), v.type.get_shape()) for v in op.operands]
    block = Block(arg_types=[*sources, *[index] * len(shape)])
    arguments: list[SSAValue] = list(block.args)
    body = op.gather(Body(block), arguments[: len(sources)], arguments[len(sources) :])
    block.add_op(func.ReturnOp(body))
    indices = [axis.reshape(-1) for axis in np.indices(shape)]
    assert_expected(sample, evaluate_body(block, [*map(to_storage, sample.operands), *indices], int(np.prod(shape))))


@samples_of(DataMovement)
def test_source_map(sample: Sample) -> None:
    op = op_of(module_of(sample))
    assert isinstance(op, DataMovement)
    (x,), shape = sample.operands, shape_of(op.results[0])
    result = np.array([x[tuple(op.source_map().eval(i, []))] for i in np.ndindex(*shape)], x.dtype)
    assert_expected(sample, result)


@samples_of(Reduction)
def test_combine(sample: Sample) -> None:
    op = op_of(module_of(sample))
    assert isinstance(op, Reduction)
    (x,), result = sample.operands, op.results[0]
    element = storage_type(element_type_of(result))
    wide = wide_float(element)
    block = Block(arg_types=[wide, wide])
    block.add_op(func.ReturnOp(op.combine(Body(block), *block.args)))
    kept_axes = [a for a in range(x.ndim) if a not in op.reduction_axes]
    rows = to_storage(x).transpose([*op.reduction_axes, *kept_axes]).reshape(-1, int(np.prod([x.shape[a] for a in kept_axes])))
    rows = rows.astype(numpy_dtype(wide))
    total = np.broadcast_to(np.array(op.identity(), object).astype(numpy_dtype(element_type_of(result))), rows.shape[1:])
    total = to_storage(np.ascontiguousarray(total)).astype(numpy_dtype(wide))
    for row in rows:
        total = evaluate_body(block, [total, row], row.size)
    assert_expected(sample, total.astype(numpy_dtype(element)))
