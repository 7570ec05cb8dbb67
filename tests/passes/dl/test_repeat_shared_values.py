"""`repeat-shared-values`: each concatenation computes cheap values itself that another one needs too."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.ir import SSAValue
from dlc.passes.dl.simplification.repeat_shared_values import RepeatSharedValuesPass
from dlc.passes.fusion.form_kernels import FormKernelsPass

from ..programs import Program, Writer, program, randoms


def _coupled(term: Callable[[Writer, SSAValue, SSAValue], SSAValue]) -> Program:
    """Two fields with interiors of 6 elements that share a term, and a border of 2 elements each."""

    def body(b: Writer, u: SSAValue, v: SSAValue) -> tuple[SSAValue, ...]:
        inside = [b(dl.SliceOp, x, starts=[1], limits=[7], strides=[1]) for x in (u, v)]
        border = b(dl.SliceOp, u, starts=[0], limits=[2], strides=[1])
        shared = term(b, *inside)
        first, second = b(dl.SubOp, inside[0], shared), b(dl.AddOp, inside[1], shared)
        return b(dl.ConcatOp, border, first, axis=0), b(dl.ConcatOp, second, border, axis=0)

    return program(body, *randoms((8,), (8,)))


def test_products_are_repeated() -> None:
    p = _coupled(lambda b, u, v: b(dl.MulOp, b(dl.MulOp, u, v), v)).apply(RepeatSharedValuesPass())
    assert p.ops.count("mul") == 4


def test_parts_of_one_concatenation_repeat_products() -> None:
    """The borders of a periodic stencil read each other's values."""

    def body(b: Writer, u: SSAValue) -> SSAValue:
        first, last = (b(dl.SliceOp, u, starts=[k], limits=[k + 1], strides=[1]) for k in (0, 7))
        products = [b(dl.MulOp, first, first), b(dl.MulOp, last, last)]
        parts = [b(dl.SubOp, *products), u, b(dl.AddOp, *products)]
        return b(dl.ConcatOp, *parts, axis=0)

    p = program(body, *randoms((8,))).apply(RepeatSharedValuesPass())
    assert p.ops.count("mul") == 4
    assert p.apply(FormKernelsPass()).ops == ["dispatch"]


def test_functions_are_stored() -> None:
    p = _coupled(lambda b, u, v: b(dl.ErfOp, u)).apply(RepeatSharedValuesPass())
    assert p.ops.count("erf") == 1


def test_results_of_other_kernels_are_stored() -> None:
    def term(b: Writer, u: SSAValue, v: SSAValue) -> SSAValue:
        return b(dl.NegOp, b(dl.CumsumOp, u, axis=0))

    assert _coupled(term).apply(RepeatSharedValuesPass()).ops.count("neg") == 1


def test_values_with_other_readers_are_stored() -> None:
    def body(b: Writer, u: SSAValue) -> tuple[SSAValue, ...]:
        term = b(dl.NegOp, u)
        parts = [b(dl.AddOp, term, u), b(dl.SubOp, term, u)]
        return (*(b(dl.ConcatOp, part, u, axis=0) for part in parts), term)

    p = program(body, *randoms((8,))).apply(RepeatSharedValuesPass())
    assert p.ops.count("neg") == 1
