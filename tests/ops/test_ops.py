"""Checks of every sample: round trip, verification, reference, inference and decomposition."""

from __future__ import annotations

import ml_dtypes
import pytest

from dlc import dims
from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dialects.dl.interfaces import Composite
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Block, Builtin, Context, TensorType, VerifyException, f16, f32, func, parse_module, print_module
from tests.ops.programs import decomposed_results, module_of, op_of
from tests.ops.sample import Sample, assert_close
from tests.ops.samples import SAMPLES

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=[s.name for s in SAMPLES])


CONTEXT = Context()
for dialect in (Builtin, func.Func, dl.Dl):
    CONTEXT.load_dialect(dialect)


def test_sample_names_are_unique() -> None:
    names = [s.name for s in SAMPLES]
    assert sorted(names) == sorted(set(names))


@every_sample
def test_round_trip(sample: Sample) -> None:
    module = module_of(sample)
    module.verify()
    for generic in (False, True):
        text = print_module(module, generic=generic)
        parsed = parse_module(CONTEXT, text)
        parsed.verify()
        assert print_module(parsed, generic=generic) == text
        assert parsed.is_structurally_equivalent(module)


@every_sample
def test_verifier_rejects_a_wrong_result_type(sample: Sample) -> None:
    op = op_of(module_of(sample))
    right = op.results[0].type
    assert isinstance(right, TensorType)
    wrong_element = f16 if right.element_type == f32 else f32
    wrong_shape = (*right.get_shape()[:-1], right.get_shape()[-1] + 1) if right.get_shape() else (2,)
    for wrong in (TensorType(wrong_element, right.get_shape()), TensorType(right.element_type, wrong_shape)):
        types = [wrong, *[r.type for r in op.results[1:]]]
        with pytest.raises(VerifyException):
            type(op).create(operands=op.operands, properties=op.properties, result_types=types).verify()


@every_sample
def test_reference(sample: Sample) -> None:
    op = op_of(module_of(sample))
    results = op.evaluate(*sample.operands)
    dtypes = [numpy_dtype(element_type_of(r)) for r in op.results]
    for result, value, expected in zip(op.results, results, sample.expected_results(dtypes), strict=True):
        assert value.shape == shape_of(result) and value.dtype == numpy_dtype(element_type_of(result))
        assert_close(value, expected, sample.tolerance)


# Ops that require static sizes, and the reason.
OPS_WITH_STATIC_SIZES: dict[type[DlOp], str] = {
    dl.ConvTransposeOp: "its weights are rearranged by their sizes",
    dl.HouseholderOp: "which of two sizes is smaller is the number of reflections",
    dl.LoopsOp: "its body is traced for static sizes",
    dl.PackNibblesOp: "an even number share bytes",
    dl.UnpackOp: "the number of tiles must be that of `size`",
}


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.op not in OPS_WITH_STATIC_SIZES and s.operands], ids=lambda s: s.name
)
def test_inference_on_symbolic_sizes(sample: Sample) -> None:
    """Sizes above 1 become symbols, equal sizes the same symbol; result sizes are the corresponding polynomials."""
    if not any(n > 1 for o in sample.operands for n in o.shape):
        return
    binding = {f"n{n}": n for o in sample.operands for n in o.shape if n > 1}

    def symbolic(operand: int, axis: int, size: int) -> dims.Size:
        depth = sample.op in (dl.GatherNdOp, dl.ScatterNdOp) and operand == 1 and axis == sample.operands[1].ndim - 1
        in_blocks = (
            sample.op in (dl.QuantizeOp, dl.DequantizeOp)
            and sample.label.startswith("blocks")
            and axis == sample.properties["axis"]
        )
        return size if size <= 1 or depth or in_blocks else dims.Dim.symbol(f"n{size}")

    types = [
        tensor_type([symbolic(k, a, n) for a, n in enumerate(shape_of(t))], element_type_of(t))
        for k, t in enumerate(sample.operand_types)
    ]
    op = sample.op.make(*Block(arg_types=types).args, **sample.properties)
    op.verify()
    static = op_of(module_of(sample))
    for result, expected in zip(op.results, static.results, strict=True):
        assert element_type_of(result) == element_type_of(expected)
        assert tuple(dims.substitute(n, binding) for n in shape_of(result)) == shape_of(expected)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if issubclass(s.op, Composite)], ids=lambda s: s.name)
def test_composites_agree_with_their_decomposition(sample: Sample) -> None:
    op = op_of(module_of(sample))
    dtypes = [numpy_dtype(element_type_of(r)) for r in op.results]
    for got, expected in zip(decomposed_results(op, sample.operands), sample.expected_results(dtypes), strict=True):
        assert_close(got, expected, sample.tolerance)


def test_errors_name_the_op_and_the_shapes() -> None:
    x, y = Block(arg_types=[tensor_type((2, 3), f32), tensor_type((4,), f32)]).args
    with pytest.raises(ShapeError, match=r"dl.add: shapes \(2, 3\) and \(4,\) do not broadcast"):
        dl.AddOp.make(x, y)


def test_arithmetic_on_storage_only_types_is_refused() -> None:
    (x,) = Block(arg_types=[tensor_type((2,), element_type(ml_dtypes.int4))]).args
    with pytest.raises(DTypeError, match=r"dl\.neg: element type i4 is storage-only; dl.cast it first"):
        dl.NegOp.make(x)
    dl.ReshapeOp.make(x, shape=(2, 1))
