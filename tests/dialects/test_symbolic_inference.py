"""Shape inference decides comparisons of symbolic sizes by polynomials or guards, not by `==` of Python."""

from __future__ import annotations

import sys

import pytest

from dlc.dialects.dl.base import element_type_of, tensor_type
from dlc.errors import DlcError
from dlc.ir import Block
from dlc.shapes.dims import Dim, decided_zero
from dlc.testing.sample import Sample
from tests.ops.samples import SAMPLES


def test_inference_does_not_compare_symbolic_sizes_by_equality(monkeypatch: pytest.MonkeyPatch) -> None:
    """`==` is False for polynomials that differ, though some sizes may make them equal: it would decide without a guard."""
    compared: set[str] = set()
    is_equal = Dim.__eq__

    def record(size: Dim, other: object) -> bool:
        result = is_equal(size, other)
        if result is False and decided_zero(size - other) is None:
            caller = sys._getframe(1)
            compared.add(f"{caller.f_code.co_filename}:{caller.f_lineno}")
        return result

    monkeypatch.setattr(Dim, "__eq__", record)
    for sample in SAMPLES:
        for has_distinct_symbols in (False, True):
            infer_with_symbolic_sizes(sample, has_distinct_symbols)
    assert not compared, "use is_known_different, compatible, or is_same for identity"


def infer_with_symbolic_sizes(sample: Sample, has_distinct_symbols: bool) -> None:
    """Infer the types of an op whose sizes above 1 are symbols: equal ones for equal sizes, or one for each axis."""
    types = [
        tensor_type(
            [
                n if n <= 1 else Dim.symbol(f"n{k}_{axis}" if has_distinct_symbols else f"n{n}")
                for axis, n in enumerate(x.shape)
            ],
            element_type_of(type_),
        )
        for k, (x, type_) in enumerate(zip(sample.operands, sample.operand_types, strict=True))
    ]
    try:
        sample.op.make(*Block(arg_types=types).args, **sample.properties)
    except DlcError:
        # The op requires static sizes.
        return
