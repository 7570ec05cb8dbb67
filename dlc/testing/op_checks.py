"""Checks of a single op: text, verification, reference, type inference, decomposition, and its results on a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlc.backends.base import Backend
from dlc.compiler import Program, compile
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.registry import make_context
from dlc.errors import DlcError
from dlc.ir import Block, VerifyException, f16, f32, parse_module, print_module
from dlc.options import Options
from dlc.shapes import dims
from dlc.shapes.dims import Dim
from dlc.testing.programs import decomposed_results, module_of, op_of
from dlc.testing.sample import Sample, assert_close, require
from dlc.weights import WeightStore

# Tolerance relative to the largest magnitude, by item size: rounding of intermediate values, and polynomial approximations.
ROUNDING = {2: 2e-2, 4: 4e-6, 8: 4e-14}


def tolerance_on_targets(sample: Sample, dtype: np.dtype[Any]) -> float:
    """Return the tolerance of results in compiled code."""
    return max(sample.tolerance, ROUNDING.get(dtype.itemsize, 0.0) if dtype.kind in "fV" else 0.0)


def check_round_trip(sample: Sample) -> None:
    """Check that the textual form, pretty and generic, is parsed to the same module."""
    module = module_of(sample)
    module.verify()
    context = make_context()
    for generic in (False, True):
        text = print_module(module, generic=generic)
        parsed = parse_module(context, text)
        parsed.verify()
        require(print_module(parsed, generic=generic) == text, f"printed differently after parsing:\n{text}")
        require(parsed.is_structurally_equivalent(module), f"parsed to another module:\n{text}")


def check_verifier(sample: Sample) -> None:
    """Check that the verifier rejects results of another element type or shape."""
    op = op_of(module_of(sample))
    element, shape = element_type_of(op.results[0]), shape_of(op.results[0])
    wrong_shape = (*shape[:-1], shape[-1] + 1) if shape else (2,)
    for wrong in (tensor_type(shape, f16 if element == f32 else f32), tensor_type(wrong_shape, element)):
        types = [wrong, *[r.type for r in op.results[1:]]]
        try:
            type(op).create(operands=op.operands, properties=op.properties, result_types=types).verify()
        except VerifyException:
            continue
        raise AssertionError(f"the verifier accepts a result of type {wrong}")


def check_reference(sample: Sample) -> None:
    """Check the reference against the sample's expected results."""
    op = op_of(module_of(sample))
    results = op.evaluate(*sample.operands)
    dtypes = [numpy_dtype(element_type_of(r)) for r in op.results]
    for result, value, expected in zip(op.results, results, sample.expected_results(dtypes), strict=True):
        require(value.shape == shape_of(result), f"the reference has shape {value.shape}, inferred {shape_of(result)}")
        assert_close(value, expected, sample.tolerance)


def check_decomposition(sample: Sample) -> None:
    """Check the decomposition of a composite against the sample's expected results."""
    op = op_of(module_of(sample))
    dtypes = [numpy_dtype(element_type_of(r)) for r in op.results]
    for got, expected in zip(decomposed_results(op, sample.operands), sample.expected_results(dtypes), strict=True):
        assert_close(got, expected, sample.tolerance)


def check_symbolic_sizes(sample: Sample, is_static: Callable[[int, int], bool] = lambda operand, axis: False) -> None:
    """Check type inference on symbolic sizes.

    Sizes above 1 become symbols, equal sizes the same symbol; result sizes are the corresponding polynomials. `is_static` tells
    whether an axis of an operand stays static.
    """
    binding = {f"n{n}": n for o in sample.operands for n in o.shape if n > 1}
    types = [
        tensor_type(
            [n if n <= 1 or is_static(k, a) else Dim.symbol(f"n{n}") for a, n in enumerate(operand.shape)], element_type_of(t)
        )
        for k, (operand, t) in enumerate(zip(sample.operands, sample.operand_types, strict=True))
    ]
    op = sample.op.make(*Block(arg_types=types).args, **sample.properties)
    op.verify()
    static = op_of(module_of(sample))
    for result, expected in zip(op.results, static.results, strict=True):
        require(element_type_of(result) == element_type_of(expected), f"element type {element_type_of(result)}")
        sizes = tuple(dims.substitute(n, binding) for n in shape_of(result))
        require(sizes == shape_of(expected), f"the symbolic shape {shape_of(result)} is {sizes}; expected {shape_of(expected)}")


def check_target(sample: Sample, target: str | Backend) -> None:
    """Check the results of the op, compiled as a program for a target."""
    # A data-dependent size is symbolic at compile time.
    module = module_of(sample, {"size": (Dim.symbol("k"),)} if issubclass(sample.op, SelectionOp) else None)
    dtypes = [numpy_dtype(element_type_of(r)) for r in op_of(module).results]
    model = compile(Program(module, WeightStore()), target, Options(num_threads=1, workers=1))
    results = model(*sample.operands).values()
    for got, expected in zip(results, sample.expected_results(dtypes), strict=True):
        assert_close(np.asarray(got), expected, tolerance_on_targets(sample, expected.dtype))


def check_dynamic_shapes(sample: Sample, target: str) -> None:
    """Check the results of the op in a dynamic-shape program, whose sizes above 1 are symbolic."""
    types = [
        tensor_type([n if n <= 1 else Dim.symbol(f"n{n}") for n in operand.shape], element_type_of(t))
        for operand, t in zip(sample.operands, sample.operand_types, strict=True)
    ]
    module = module_of(sample, operand_types=types)
    dtypes = [numpy_dtype(element_type_of(r)) for r in op_of(module).results]
    try:
        model = compile(Program(module, WeightStore()), target, Options(num_threads=1, workers=1))
        results = model(*sample.operands).values()
    except DlcError as error:
        raise AssertionError(f"with symbolic sizes: {error}") from error
    for got, expected in zip(results, sample.expected_results(dtypes), strict=True):
        assert_close(np.asarray(got), expected, tolerance_on_targets(sample, expected.dtype))
