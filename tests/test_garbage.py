"""Garbage collection is rare during compilation, and restored afterwards; compiled models leave no garbage."""

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
from dlc.ir import Operation, memo_table
from dlc.machine.garbage_collection import infrequent_collection
from dlc.options import Options
from tests.models.skeletons import path_of


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collection_is_rare_during_compilation() -> None:
    gc.set_threshold(300, 7, 7)
    lowered, within = dlc.jit(lambda x: x + 1).lower(1.0), list[int]()
    compile(lowered.program, "cpu", Options(cache=False), progress=lambda *_: within.append(gc.get_threshold()[0]))
    assert within and min(within) > 300
    assert gc.get_threshold() == (300, 7, 7)


def test_the_last_of_several_compilations_restores_them() -> None:
    gc.set_threshold(300, 7, 7)
    first, second = ExitStack(), ExitStack()
    first.enter_context(infrequent_collection())
    second.enter_context(infrequent_collection())
    first.close()
    assert gc.get_threshold()[0] > 300
    second.close()
    assert gc.get_threshold() == (300, 7, 7)


@pytest.mark.parametrize("threshold", [0, 3_000_000])
def test_user_settings_are_preserved(threshold: int) -> None:
    gc.set_threshold(threshold, 7, 7)
    with infrequent_collection():
        assert gc.get_threshold() == (threshold, 7, 7)
    assert gc.get_threshold() == (threshold, 7, 7)


def test_no_collection_at_the_end_of_a_compilation() -> None:
    gc.set_threshold(300, 7, 7)
    looked = list[str]()

    def look(phase: str, info: dict[str, int]) -> None:
        looked.append(phase)

    gc.collect()
    gc.callbacks.append(look)
    try:
        with infrequent_collection():
            made = [[k] for k in range(10_000)]
        following = [[k] for k in range(10)]
    finally:
        gc.callbacks.remove(look)
    assert not looked
    old = set(map(id, gc.get_objects(generation=2)))
    assert id(made[0]) in old and id(following[0]) not in old


def test_frozen_objects_stay_frozen() -> None:
    gc.set_threshold(300, 7, 7)
    frozen = [[0]]
    gc.freeze()
    try:
        with infrequent_collection():
            pass
        assert id(frozen) not in set(map(id, gc.get_objects()))
    finally:
        gc.unfreeze()


def weights_in_memory() -> int:
    return sum(type(o) is WeightOp for o in gc.get_objects())


def test_the_ir_of_a_file_is_freed_after_compilation() -> None:
    gc.collect()
    before = weights_in_memory()
    gc.disable()
    try:
        model = dlc.compile_model(path_of("mnist_cnn"), cache=False)
        assert weights_in_memory() == before
    finally:
        gc.enable()
    assert [info.name for info in model.inputs] == ["input"]


def test_compiled_ir_leaves_no_reference_cycles() -> None:
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


def test_caches_of_a_large_program_are_freed_with_it() -> None:
    large, small = memo_table(), memo_table()
    large.update((k, k) for k in range(10_000))
    small.update((k, k) for k in range(10))
    compile(dlc.jit(lambda x: x + 1).lower(1.0).program, "cpu", Options(cache=False))
    assert (len(large), len(small)) == (0, 10)


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def _executable() -> int:
    """Return the number of anonymous executable mappings."""
    with open("/proc/self/maps") as file:
        return sum("x" in flags and file_of[:1] in ([], ["/dev/zero"]) for _, flags, _, _, _, *file_of in map(str.split, file))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_deleted_models_free_their_memory(target: str) -> None:
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
