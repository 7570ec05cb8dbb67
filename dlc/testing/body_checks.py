"""Checks that the scalar bodies and affine maps of ops agree with their references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import dlc.backends.reference as _reference  # It registers the rules of arith, math and tensor.
from dlc.backends.reference.evaluation_context import EvaluationContext, Frame
from dlc.dialects.dl.base import element_type_of, is_storage_only, shape_of
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.interfaces import Body, DataMovement, Elementwise, GatherLike, Reduction, storage_type
from dlc.dialects.dl.scalar import wide_float
from dlc.ir import Attribute, Block, SSAValue, TensorType, func, index
from dlc.testing.programs import module_of, op_of
from dlc.testing.sample import Sample, assert_close

_evaluator = _reference
# The rounding of formulas, which may differ from the reference's by a few ulp of the result, by item size.
_FORMULA_ROUNDING = {2: 1e-3, 4: 1e-6, 8: 1e-14}


def check_scalar_body(sample: Sample) -> None:
    """Check the scalar code of an elementwise op."""
    op = cast(Elementwise, op_of(module_of(sample)))
    block = Block(arg_types=[storage_type(element_type_of(v)) for v in op.operands])
    block.add_op(func.ReturnOp(op.scalar(Body(block), *block.args)))
    operands = [_to_storage(o).reshape(-1) for o in np.broadcast_arrays(*sample.operands)]
    _assert_expected(sample, _evaluate(block, operands, operands[0].size))


def check_gather_body(sample: Sample) -> None:
    """Check the code that computes a result element of a gather from its index."""
    op = cast(GatherLike, op_of(module_of(sample)))
    shape = cast("tuple[int, ...]", shape_of(op.results[0]))
    if 0 in shape:
        return
    sources: list[Attribute] = [
        TensorType(storage_type(element_type_of(v)), cast("tuple[int, ...]", shape_of(v))) for v in op.operands
    ]
    block = Block(arg_types=[*sources, *[index] * len(shape)])
    arguments: list[SSAValue] = list(block.args)
    block.add_op(func.ReturnOp(op.gather(Body(block), arguments[: len(sources)], arguments[len(sources) :])))
    indices = [axis.reshape(-1) for axis in np.indices(shape)]
    _assert_expected(sample, _evaluate(block, [*map(_to_storage, sample.operands), *indices], int(np.prod(shape))))


def check_source_map(sample: Sample) -> None:
    """Check the affine map of a data-movement op."""
    op = cast(DataMovement, op_of(module_of(sample)))
    (x,), shape = sample.operands, cast("tuple[int, ...]", shape_of(op.results[0]))
    result = np.array([x[tuple(op.source_map().eval(i, []))] for i in np.ndindex(*shape)], x.dtype)
    _assert_expected(sample, result)


def check_combination(sample: Sample) -> None:
    """Check the identity and the combinator of a reduction."""
    op = cast(Reduction, op_of(module_of(sample)))
    (x,), result = sample.operands, op.results[0]
    element = storage_type(element_type_of(result))
    wide = wide_float(element)
    block = Block(arg_types=[wide, wide])
    block.add_op(func.ReturnOp(op.combine(Body(block), *block.args)))
    kept_axes = [a for a in range(x.ndim) if a not in op.reduction_axes]
    kept_elements = int(np.prod([x.shape[a] for a in kept_axes]))
    rows = _to_storage(x).transpose([*op.reduction_axes, *kept_axes]).reshape(-1, kept_elements).astype(numpy_dtype(wide))
    total = np.broadcast_to(np.array(op.identity(), object).astype(numpy_dtype(element_type_of(result))), rows.shape[1:])
    total = _to_storage(np.ascontiguousarray(total)).astype(numpy_dtype(wide))
    for row in rows:
        total = _evaluate(block, [total, row], row.size)
    _assert_expected(sample, total.astype(numpy_dtype(element)))


def _to_storage(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as kernels store it: unsigned integers and storage-only types by their bits."""
    return array.view(f"i{array.itemsize}") if _is_stored_by_bits(array.dtype) else array


def _is_stored_by_bits(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "u" or is_storage_only(element_type(dtype))


def _evaluate(block: Block, arguments: Sequence[NDArray[Any]], points: int) -> NDArray[Any]:
    """Return the value that a block of scalar code yields for each element."""
    with np.errstate(all="ignore"):
        (result,) = Frame(EvaluationContext({}, {}), points).run(block, list(arguments))
    return np.asarray(cast(Any, result))


def _assert_expected(sample: Sample, elements: NDArray[Any]) -> None:
    result = op_of(module_of(sample)).results[0]
    dtype, shape = numpy_dtype(element_type_of(result)), cast("tuple[int, ...]", shape_of(result))
    got = np.broadcast_to(elements, (int(np.prod(shape)),)).reshape(shape)
    got = got.view(dtype) if _is_stored_by_bits(dtype) else got
    tolerance = max(sample.tolerance, _FORMULA_ROUNDING.get(dtype.itemsize, 0.0) if dtype.kind in "fV" else 0.0)
    assert_close(got, sample.expected_results([dtype])[0], tolerance)
