"""The scalar bodies and maps that ops give to passes compute what their references do."""

from __future__ import annotations

import numpy as np
import pytest

import dlc.backends.reference  # noqa: F401 - registers the rules of arith, math and tensor
from dlc.backends.reference.machine import Frame, Machine
from dlc.dialects.dl.base import element_type_of, is_narrow, shape_of
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.interfaces import Body, Elementwise, Gathering, Movement, Reduction, storage_type
from dlc.dialects.dl.scalar import wide_float
from dlc.ir import Attribute, Block, SSAValue, TensorType, func, index
from tests.ops.programs import module_of, op_of
from tests.ops.sample import Sample, assert_close
from tests.ops.samples import SAMPLES


def of_interface(interface: type):
    chosen = [s for s in SAMPLES if issubclass(s.op, interface)]
    return pytest.mark.parametrize("sample", chosen, ids=[s.name for s in chosen])


def stored(array: np.ndarray) -> np.ndarray:
    """An array as kernels hold it: unsigned integers and narrow numbers by their bits."""
    return array.view(f"i{array.itemsize}") if held_by_bits(array.dtype) else array


def held_by_bits(dtype: np.dtype) -> bool:
    return dtype.kind == "u" or is_narrow(element_type(dtype))


def run(block: Block, arguments: list[np.ndarray], points: int) -> np.ndarray:
    """The value that a block of scalar code yields at each point."""
    with np.errstate(all="ignore"):
        (result,) = Frame(Machine({}, {}), points).run(block, arguments)
    return np.asarray(result)


def check(sample: Sample, elements: np.ndarray) -> None:
    result = op_of(module_of(sample)).results[0]
    dtype = numpy_dtype(element_type_of(result))
    got = np.broadcast_to(elements, (int(np.prod(shape_of(result))),)).reshape(shape_of(result))
    got = got.view(dtype) if held_by_bits(dtype) else got
    # Formulas may round differently from the reference, by a few ulp of the result.
    tolerance = max(sample.tolerance, {2: 1e-3, 4: 1e-6, 8: 1e-14}.get(dtype.itemsize, 0.0) if dtype.kind in "fV" else 0.0)
    assert_close(got, sample.expected_results([dtype])[0], tolerance)


@of_interface(Elementwise)
def test_scalar(sample: Sample) -> None:
    op = op_of(module_of(sample))
    assert isinstance(op, Elementwise)
    block = Block(arg_types=[storage_type(element_type_of(v)) for v in op.operands])
    block.add_op(func.ReturnOp(op.scalar(Body(block), *block.args)))
    operands = [stored(o).reshape(-1) for o in np.broadcast_arrays(*sample.operands)]
    check(sample, run(block, operands, operands[0].size))


@of_interface(Gathering)
def test_gather(sample: Sample) -> None:
    op = op_of(module_of(sample))
    assert isinstance(op, Gathering)
    shape = shape_of(op.results[0])
    if 0 in shape:
        return
    sources: list[Attribute] = [TensorType(storage_type(element_type_of(v)), v.type.get_shape()) for v in op.operands]
    block = Block(arg_types=[*sources, *[index] * len(shape)])
    arguments: list[SSAValue] = list(block.args)
    body = op.gather(Body(block), arguments[: len(sources)], arguments[len(sources) :])
    block.add_op(func.ReturnOp(body))
    places = [axis.reshape(-1) for axis in np.indices(shape)]
    check(sample, run(block, [*map(stored, sample.operands), *places], int(np.prod(shape))))


@of_interface(Movement)
def test_source_map(sample: Sample) -> None:
    op = op_of(module_of(sample))
    assert isinstance(op, Movement)
    (x,), shape = sample.operands, shape_of(op.results[0])
    moved = np.array([x[tuple(op.source_map().eval(place, []))] for place in np.ndindex(*shape)], x.dtype)
    check(sample, moved)


@of_interface(Reduction)
def test_combine(sample: Sample) -> None:
    op = op_of(module_of(sample))
    assert isinstance(op, Reduction)
    (x,), result = sample.operands, op.results[0]
    element = storage_type(element_type_of(result))
    wide = wide_float(element)
    block = Block(arg_types=[wide, wide])
    block.add_op(func.ReturnOp(op.combine(Body(block), *block.args)))
    kept = [a for a in range(x.ndim) if a not in op.reduction_axes]
    rows = stored(x).transpose([*op.reduction_axes, *kept]).reshape(-1, int(np.prod([x.shape[a] for a in kept])))
    rows = rows.astype(numpy_dtype(wide))
    total = np.broadcast_to(np.array(op.identity(), object).astype(numpy_dtype(element_type_of(result))), rows.shape[1:])
    total = stored(np.ascontiguousarray(total)).astype(numpy_dtype(wide))
    for row in rows:
        total = run(block, [total, row], row.size)
    check(sample, total.astype(numpy_dtype(element)))
