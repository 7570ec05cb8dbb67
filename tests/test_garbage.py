"""While programs are compiled garbage is looked for rarely, and afterwards as often as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import dlc
from dlc.compiler import compile
from dlc.dialects.dl.creation import WeightOp
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
