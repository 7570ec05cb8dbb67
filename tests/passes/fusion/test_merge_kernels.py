"""`merge-kernels`: kernels that compute parts of arrays of one shape from the same arrays become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dlc.dialects import dl
from dlc.dialects.registry import make_context
from dlc.instrument.provenance import origins
from dlc.ir import SSAValue, parse_module
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.passes.fusion.merge_kernels import MergeKernelsPass
from dlc.target import CPU_LEVELS, OPENCL_PROFILES, Target
from tests.passes.programs import Program, Writer, program, randoms

Parts = Callable[[Writer, SSAValue, SSAValue], SSAValue]


def _parts(b: Writer, x: SSAValue, y: SSAValue, op: type[dl.AddOp] | type[dl.SubOp] | type[dl.MulOp]) -> SSAValue:
    """Compute the first and the last half separately, as `peel-borders` does, with a common term in the first."""
    halves = [[b(dl.SliceOp, v, starts=[k], limits=[k + 4], strides=[1]) for v in (x, y)] for k in (0, 4)]
    term = b(dl.ExpOp, b(dl.AddOp, *halves[0]))
    return b(dl.ConcatOp, b(op, term, halves[0][0]), b(op, *halves[1]), axis=0)


def _merged(
    body: Callable[..., SSAValue | Sequence[SSAValue]], inputs: int, target: Target | None = None, elements: int = 8
) -> Program:
    p = program(body, *randoms(*[(elements,)] * inputs)).apply(FormKernelsPass(), tolerance=1e-5)
    return p.apply(MergeKernelsPass(target or CPU_LEVELS["cpu:avx2"]), tolerance=1e-5)


def test_coupled_stencils_are_one_kernel_with_common_terms() -> None:
    def body(b: Writer, u: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
        return _parts(b, u, v, dl.SubOp), _parts(b, v, u, dl.MulOp), _parts(b, u, v, dl.MulOp)

    p = _merged(body, 2)
    (kernel,) = [op for op in p.module.ops if isinstance(op, dl.KernelOp)]
    assert p.ops == ["dispatch"] and len(kernel.yielded) == 3
    assert sum(isinstance(op, dl.ExpOp) for op in kernel.body.block.ops) == 2


def test_locations_refer_to_the_ops_of_both_kernels() -> None:
    p = _merged(lambda b, u, v: [_parts(b, u, v, dl.SubOp), _parts(b, u, v, dl.AddOp)], 2)
    (dispatch,) = [op for op in p.main.body.block.ops if isinstance(op, dl.DispatchOp)]
    (kernel,) = [op for op in p.module.ops if isinstance(op, dl.KernelOp)]
    names = origins(dispatch.location)
    numbers = {int(name[1:]) for op in kernel.body.block.ops for name in origins(op.location) if name.startswith("#")}
    assert max(numbers) == len(names) - 1


def _long_formula(b: Writer, u: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
    """Compute five values that later ones read, and their five results, as derivatives do."""
    terms = [b(dl.ExpOp, b(dl.MulOp, u, v))]
    for _ in range(4):
        terms.append(b(dl.SinOp, b(dl.AddOp, terms[-1], u)))
    return [b(dl.MulOp, x, y) for x, y in zip(terms, reversed(terms), strict=True) if x is not y]


def test_values_between_kernels_stay_in_registers() -> None:
    p = _merged(_long_formula, 2)
    (kernel,) = [op for op in p.module.ops if isinstance(op, dl.KernelOp)]
    assert p.ops == ["dispatch"] and len(kernel.yielded) == 4


def test_long_programs_are_several_kernels() -> None:
    """The ops of a kernel, and so the time to compile it, are bounded."""

    def body(b: Writer, u: SSAValue, v: SSAValue) -> SSAValue:
        for _ in range(600):
            u, v = b(dl.SinOp, b(dl.AddOp, u, v)), b(dl.MulOp, u, v)
        return b(dl.AddOp, u, v)

    kernels = [op for op in _merged(body, 2).module.ops if isinstance(op, dl.KernelOp)]
    sizes = [len(kernel.body.block.ops) for kernel in kernels]
    assert max(sizes) <= 128


def _dependent(b: Writer, u: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
    first = _parts(b, u, v, dl.SubOp)
    return first, _parts(b, u, b(dl.CumsumOp, first, axis=0), dl.SubOp)


def _shifted(b: Writer, u: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
    """Read the first result at other indices: reversed, and as parts."""
    first = b(dl.ExpOp, u)
    return first, b(dl.MulOp, b(dl.ReverseOp, first, axes=[0]), v), _parts(b, first, v, dl.SubOp)


def _read_before(b: Writer, u: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
    """Compute a sum of the first result before the second."""
    first = b(dl.ExpOp, u)
    return b(dl.CumsumOp, first, axis=0), b(dl.MulOp, first, b(dl.ReverseOp, v, axes=[0]))


def _many(b: Writer, u: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
    terms = [b(dl.SinOp, u)]
    for _ in range(8):
        terms.append(b(dl.MulOp, terms[-1], v))
    return terms


@pytest.mark.parametrize(
    ("body", "inputs", "dispatches"),
    [
        (_dependent, 2, 3),
        (_shifted, 2, 3),
        (_read_before, 2, 3),
        (_many, 2, 2),
        (lambda b, u, v: [b(dl.CumsumOp, u, axis=0), b(dl.CumsumOp, u, axis=0, reverse=True)], 2, 2),
    ],
    ids=["dependent", "other indices", "read before", "more than eight results", "library kernels"],
)
def test_other_kernels_stay_separate(body: Callable[..., Sequence[SSAValue]], inputs: int, dispatches: int) -> None:
    assert _merged(body, inputs).ops.count("dispatch") == dispatches


@pytest.mark.parametrize("elements", [1024, 1025])
def test_kernels_of_other_arrays_merge_if_launches_take_longer(elements: int) -> None:
    def body(b: Writer, u: SSAValue, v: SSAValue, w: SSAValue, x: SSAValue) -> Sequence[SSAValue]:
        return b(dl.AddOp, u, v), b(dl.SubOp, w, x)

    assert _merged(body, 4, elements=elements).ops.count("dispatch") == (1 if elements == 1024 else 2)


def test_kernels_of_large_arrays_merge_if_they_share_memory() -> None:
    assert _merged(_long_formula, 2, elements=4096).ops == ["dispatch"]


def test_readers_of_arrays_that_are_updated_in_place_stay_separate() -> None:
    """A kernel that reads an array before and after its update would need a copy of it."""
    rows, row = "tensor<11x3xf32>", "tensor<1x3xf32>"
    first_row = "{starts = array<i64: 0, 0>, limits = array<i64: 1, 3>, strides = array<i64: 1, 1>}"
    module = parse_module(
        make_context(),
        f"""
func.func @main(%a: {rows}, %i: tensor<1xi64>) -> ({rows}, {row}) {{
  %r = dl.dispatch @first(%a) : ({rows}) -> {row}
  %b = dl.dispatch @change(%a, %i, %r) : ({rows}, tensor<1xi64>, {row}) -> {rows}
  %s = dl.dispatch @second(%r, %b) : ({row}, {rows}) -> {row}
  func.return %b, %s : {rows}, {row}
}}
dl.kernel @first(%a: {rows}) -> ({row}) {{
  %x = dl.slice %a {first_row} : ({rows}) -> {row}
  %y = dl.exp %x : ({row}) -> {row}
  dl.yield %y : {row}
}}
dl.kernel @change(%a: {rows}, %i: tensor<1xi64>, %x: {row}) -> ({rows}) {{
  %y = dl.scatter_rows %a, %i, %x {{mode = "none"}} : ({rows}, tensor<1xi64>, {row}) -> {rows}
  dl.yield %y : {rows}
}}
dl.kernel @second(%r: {row}, %b: {rows}) -> ({row}) {{
  %x = dl.slice %b {first_row} : ({rows}) -> {row}
  %y = dl.mul %r, %x : ({row}, {row}) -> {row}
  dl.yield %y : {row}
}}""",
    )
    MergeKernelsPass(CPU_LEVELS["cpu:avx2"]).apply(make_context(), module)
    assert sum(isinstance(op, dl.DispatchOp) for op in module.walk()) == 3


def test_devices_with_work_groups_keep_kernels() -> None:
    p = _merged(lambda b, u, v: [_parts(b, u, v, dl.SubOp), _parts(b, u, v, dl.AddOp)], 2, OPENCL_PROFILES["opencl:gpu"])
    assert p.ops.count("dispatch") == 2
