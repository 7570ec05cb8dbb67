"""`merge-kernels`: kernels that compute parts of arrays of one shape from the same arrays become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dlc.dialects import dl
from dlc.instrument.provenance import origins
from dlc.ir import SSAValue
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


def _merged(body: Callable[..., SSAValue | Sequence[SSAValue]], inputs: int, target: Target | None = None) -> Program:
    p = program(body, *randoms(*[(8,)] * inputs)).apply(FormKernelsPass(), tolerance=1e-5)
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


def _dependent(b: Writer, u: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
    first = _parts(b, u, v, dl.SubOp)
    return first, _parts(b, u, b(dl.CumsumOp, first, axis=0), dl.SubOp)


def _four(b: Writer, u: SSAValue, v: SSAValue) -> Sequence[SSAValue]:
    return [_parts(b, x, y, op) for op in (dl.SubOp, dl.MulOp) for x, y in ((u, v), (v, u))]


@pytest.mark.parametrize(
    ("body", "inputs", "dispatches"),
    [
        (_dependent, 2, 3),
        (_four, 2, 2),
        (lambda b, u, v, w, x: [_parts(b, u, v, dl.SubOp), _parts(b, w, x, dl.SubOp)], 4, 2),
        (lambda b, u, v: [b(dl.CumsumOp, u, axis=0), b(dl.CumsumOp, u, axis=0, reverse=True)], 2, 2),
    ],
    ids=["dependent", "more than three results", "other arrays", "library kernels"],
)
def test_other_kernels_stay_separate(body: Callable[..., Sequence[SSAValue]], inputs: int, dispatches: int) -> None:
    assert _merged(body, inputs).ops.count("dispatch") == dispatches


def test_devices_with_work_groups_keep_kernels() -> None:
    p = _merged(lambda b, u, v: [_parts(b, u, v, dl.SubOp), _parts(b, u, v, dl.AddOp)], 2, OPENCL_PROFILES["opencl:gpu"])
    assert p.ops.count("dispatch") == 2
