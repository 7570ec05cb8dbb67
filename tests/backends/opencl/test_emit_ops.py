"""Every op on a device, with the samples of the CPU emitter, compared with the reference evaluator."""

from __future__ import annotations

from types import ModuleType

import pytest

from dlc.target import Target
from tests.backends.cpu import test_emit_memory as memory
from tests.backends.cpu import test_emit_ops as ops
from tests.backends.cpu import test_emit_random as random
from tests.backends.opencl.kernels import PROFILES, queue, run

WIDE = PROFILES[-1:]


@pytest.fixture(autouse=True)
def on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    queue()
    modules: tuple[ModuleType, ...] = (ops, memory, random)
    for module in modules:
        monkeypatch.setattr(module, "run", run)


@pytest.mark.parametrize("profile", WIDE)
@pytest.mark.parametrize("dtype", ops.FLOATS)
def test_floats(dtype: str, profile: Target) -> None:
    ops.test_floats(dtype, (2, 37), profile)


@pytest.mark.parametrize("profile", WIDE)
@pytest.mark.parametrize("dtype", ops.INTEGERS)
def test_integers(dtype: str, profile: Target) -> None:
    ops.test_integers(dtype, (2, 37), profile)


@pytest.mark.parametrize("profile", WIDE)
@pytest.mark.parametrize("dtype", ["f16", "i64"])
def test_scalars(dtype: str, profile: Target) -> None:
    (ops.test_integers if dtype == "i64" else ops.test_floats)(dtype, (1,), profile)


@pytest.mark.parametrize("profile", WIDE)
@pytest.mark.parametrize("dtype", ops.INTEGERS)
def test_division(dtype: str, profile: Target) -> None:
    ops.test_division(dtype, profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_bools_and_selection(profile: Target) -> None:
    ops.test_bools_and_selection((2, 37), profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_fused_multiply_add(profile: Target) -> None:
    ops.test_fused_multiply_add("f32", profile)


@pytest.mark.parametrize("profile", WIDE)
@pytest.mark.parametrize("name", ["transposed", "broadcast lanes", "broadcast rows", "everything", "one past a register"])
def test_transfers(name: str, profile: Target) -> None:
    memory.test_transfers(name, profile)


@pytest.mark.parametrize("profile", WIDE)
@pytest.mark.parametrize("name", memory.REPEATED)
def test_reads_that_repeat_elements(name: str, profile: Target) -> None:
    memory.test_reads_that_repeat_elements(name, "f32", profile)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", ["f32", "i1"])
def test_padding(dtype: str, profile: Target) -> None:
    memory.test_padding((-1, -3), dtype, profile)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", ["f32", "i8"])
def test_reductions(dtype: str, profile: Target) -> None:
    memory.test_reductions(dtype, 55, profile)


@pytest.mark.parametrize("profile", WIDE)
@pytest.mark.parametrize(
    "check",
    [
        memory.test_writes_in_other_orders,
        memory.test_views,
        memory.test_extremum_of_nan,
        memory.test_constants_and_broadcasts,
    ],
)
def test_memory_and_vectors(check, profile: Target) -> None:
    check(profile)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("plain", [False, True], ids=["any", "plain"])
@pytest.mark.parametrize("seed", range(3))
def test_random_kernels(seed: int, plain: bool, profile: Target) -> None:
    random.test_machine_code_agrees_with_the_evaluator(seed, plain, profile)
