"""Specializations are counted, reported and warned about."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.options import Environment
from dlc.runtime.models import specializations
from dlc.runtime.models.specializations import Specialization, Specializations


def test_recompilations_are_logged_with_the_change(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DLC_LOG", "recompiles")

    @dlc.jit(target="reference", static_argnames="n")
    def scale(x: Any, y: Any, n: int = 1) -> Any:
        return x * n + y

    x = np.ones(3, np.float32)
    scale(x, 1.5)
    scale(x, 2.5)
    scale(x[:2], 1.5)
    scale(x[:2], 1.5, n=2)
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition(" compilation ")[2] for line in lines] == [
        "1: x: float32[3], y: float",
        "2: x: float32[3] → float32[2]",
        "3: x: float32[2], y: float, n: 2",
    ]


def test_nothing_is_logged_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    dlc.jit(target="reference")(lambda x: x)(np.ones(3))
    assert capfd.readouterr().err == ""


def test_the_ninth_compilation_warns_once() -> None:
    cache = Specializations[int]("step", "declare symbolic dimensions")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(20):
            cache.compile(k, k, {}, lambda k=k: Specialization(k), {"x": str(k)})
    (warning,) = caught
    assert "step was compiled 9 times, now for x: 7 → 8; declare symbolic dimensions" in str(warning.message)


def test_the_number_of_cached_specializations_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specializations, "MAX_CACHED_PROGRAMS", 2)
    traced: list[int] = []

    @dlc.jit(target="reference")
    def double(x: Any) -> Any:
        traced.append(x.shape[0])
        return x + x

    for size in (1, 2, 2, 3, 2, 1, 3):
        assert double(np.ones(size)).shape == (size,)
    assert traced == [1, 2, 3, 1, 3]


def test_an_unknown_log_topic_is_refused() -> None:
    with pytest.raises(dlc.UnsupportedError, match="DLC_LOG=everything: expected recompiles"):
        Environment.read({"DLC_LOG": "everything"})


def test_a_kernel_that_needs_static_sizes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.compiler.driver.reason_to_specialize", lambda _: "the stride of a vector is symbolic")

    @dlc.jit(dynamic={"x": {0: "N"}}, cache=False, num_threads=1)
    def double(x: Any) -> Any:
        return x + x

    with pytest.warns(UserWarning, match="double is specialized per shape: the stride of a vector is symbolic") as caught:
        np.testing.assert_array_equal(double(np.ones(3)), 2 * np.ones(3))
    assert caught[0].filename == __file__
