"""While programs are compiled garbage is looked for rarely, and afterwards as often as before."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

import dlc
from dlc.compiler import compile
from dlc.dialects.dl.creation import WeightOp
from dlc.ir import Operation, remembered
from dlc.machine.garbage import collected_rarely
from dlc.options import Options
from tests.models.skeletons import path_of


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_is_looked_for_rarely_while_a_program_is_compiled() -> None:
    gc.set_threshold(300, 7, 7)
    lowered, within = dlc.jit(lambda x: x + 1).lower(1.0), list[int]()
    compile(lowered.program, "cpu", Options(cache=False), progress=lambda *_: within.append(gc.get_threshold()[0]))
    assert within and min(within) > 300
    assert gc.get_threshold() == (300, 7, 7)


def test_the_last_of_several_compilations_restores_them() -> None:
    gc.set_threshold(300, 7, 7)
    first, second = ExitStack(), ExitStack()
    first.enter_context(collected_rarely())
    second.enter_context(collected_rarely())
    first.close()
    assert gc.get_threshold()[0] > 300
    second.close()
    assert gc.get_threshold() == (300, 7, 7)


@pytest.mark.parametrize("threshold", [0, 3_000_000])
def test_what_a_user_has_asked_for_stays(threshold: int) -> None:
    gc.set_threshold(threshold, 7, 7)
    with collected_rarely():
        assert gc.get_threshold() == (threshold, 7, 7)
    assert gc.get_threshold() == (threshold, 7, 7)


def test_what_a_compilation_leaves_is_not_looked_at_at_its_end() -> None:
    gc.set_threshold(300, 7, 7)
    looked = list[str]()

    def look(phase: str, info: dict[str, int]) -> None:
        looked.append(phase)

    gc.collect()
    gc.callbacks.append(look)
    try:
        with collected_rarely():
            made = [[k] for k in range(10_000)]
        following = [[k] for k in range(10)]
    finally:
        gc.callbacks.remove(look)
    assert not looked
    old = set(map(id, gc.get_objects(generation=2)))
    assert id(made[0]) in old and id(following[0]) not in old


def test_what_is_frozen_stays_frozen() -> None:
    gc.set_threshold(300, 7, 7)
    frozen = [[0]]
    gc.freeze()
    try:
        with collected_rarely():
            pass
        assert id(frozen) not in set(map(id, gc.get_objects()))
    finally:
        gc.unfreeze()


def weights_in_memory() -> int:
    return sum(type(o) is WeightOp for o in gc.get_objects())


def test_ir_of_a_file_is_gone_when_it_is_compiled() -> None:
    gc.collect()
    before = weights_in_memory()
    gc.disable()
    try:
        model = dlc.compile_model(path_of("mnist_cnn"), cache=False)
        assert weights_in_memory() == before
    finally:
        gc.enable()
    assert [info.name for info in model.inputs] == ["input"]


def test_ir_that_is_compiled_leaves_no_circles() -> None:
    lowered = dlc.jit(lambda x, w: np.tanh(x @ w) * 2).lower(np.ones((4, 8), np.float32), np.ones((8, 4), np.float32))
    compile(lowered.program, "cpu", Options(cache=False))
    gc.collect()
    gc.disable()
    try:
        compile(lowered.program, "cpu", Options(cache=False))
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {o.name for o in gc.garbage if isinstance(o, Operation)}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    # The last of the program, and literals that were never in a block: an op and its result hold one another.
    assert left <= {"arith.constant", "func.return", "dl.dispatch"}


def test_what_is_remembered_of_a_large_program_goes_with_it() -> None:
    large, small = remembered(), remembered()
    large.update((k, k) for k in range(10_000))
    small.update((k, k) for k in range(10))
    compile(dlc.jit(lambda x: x + 1).lower(1.0).program, "cpu", Options(cache=False))
    assert (len(large), len(small)) == (0, 10)


def _resident() -> int:
    """The bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def _executable() -> int:
    """How many pieces of memory hold code that is of no file."""
    with open("/proc/self/maps") as file:
        return sum("x" in flags and file_of[:1] in ([], ["/dev/zero"]) for _, flags, _, _, _, *file_of in map(str.split, file))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_models_that_are_let_go_of_leave_nothing(target: str) -> None:
    def compiled(k: int) -> None:
        w = np.full((512, 1024), k, np.float32)  # 2 MB, which a leak of any part of a model holds as well
        result = dlc.jit(lambda x: x @ w, target=target)(np.ones((2, 512), np.float32))
        assert np.asarray(result)[1, 1] == 512 * k

    for k in range(8):
        compiled(k)
    gc.collect()
    resident, executable = _resident(), _executable()
    for k in range(8, 72):
        compiled(k)
    gc.collect()
    assert _resident() - resident < 16 << 20  # of 128 MB
    assert _executable() - executable <= 2
