"""Consuming a key twice is an error that names both lines; nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.random import bits, fold_in, key, normal, split, uniform

KEY = key(0)


def _in_a_scan(k: Any) -> Any:
    return dlc.lax.scan(lambda total, _: (total + normal(k), None), np.float32(0), None, length=3)[0]


def _in_a_while(k: Any) -> Any:
    return dlc.lax.while_loop(lambda x: x < 9, lambda x: x + uniform(fold_in(k, 3)), np.float32(0))


def _after_a_branch(k: Any) -> Any:
    return dlc.lax.cond(k[0] == 0, lambda: normal(k), lambda: np.float32(0)) + normal(k)


TWICE: dict[str, Callable[[Any], Any]] = {
    "drawn twice": lambda k: normal(k) + uniform(k),
    "split and drawn": lambda k: (split(k), normal(k)),
    "in Python's loop": lambda k: [bits(k) for _ in range(2)],
    "an element twice": lambda k: normal(split(k)[0]) + normal(split(k, reuse=True)[0]),
    "folded in twice": lambda k: [normal(fold_in(k, 1)), normal(fold_in(k, 1))],
    "made twice": lambda k: normal(key(3)) + normal(key(3)),
    "after a branch": _after_a_branch,
    "in a scan": _in_a_scan,
    "in a while": _in_a_while,
}


def _each_step(k: Any) -> Any:
    def step(carry: Any, i: Any) -> Any:
        k, total = carry
        k, own = split(k)
        return (k, total + normal(own) + uniform(fold_in(KEY, i))), None

    return dlc.lax.scan(step, (k, np.float32(0)), np.arange(3))[0][1]


ONCE: dict[str, Callable[[Any], Any]] = {
    "of a split": lambda k: [normal(own) for own in split(k, 3)],
    "folded in": lambda k: [normal(fold_in(k, i)) for i in range(3)],
    "folded in and drawn": lambda k: normal(k) + normal(fold_in(k, 1)),
    "said": lambda k: normal(k) - normal(k, reuse=True),
    "in both branches": lambda k: dlc.lax.cond(k[0] == 0, lambda: normal(k), lambda: uniform(k)),
    "in every step": _each_step,
    "in a long chain": lambda k: normal(_chained(k)),
}


def _chained(k: Any) -> Any:
    for i in range(1500):
        k = fold_in(k, i)
    return k


@pytest.mark.parametrize("function", TWICE.values(), ids=TWICE)
def test_twice(function: Callable[[Any], Any]) -> None:
    with pytest.raises(DlcError, match=r"test_key_uses.py:\d+: dlc\.random\.\w+: the key .*same values.*reuse=True"):
        dlc.jit(function).lower(KEY)


@pytest.mark.parametrize("function", ONCE.values(), ids=ONCE)
def test_once(function: Callable[[Any], Any]) -> None:
    dlc.jit(function).lower(KEY)


def test_the_message_names_both_lines() -> None:
    def function(k: Any) -> Any:
        a = normal(k)
        return a + uniform(k)

    line = function.__code__.co_firstlineno
    expected = rf"test_key_uses.py:{line + 2}: dlc.random.uniform: the key was used before \(test_key_uses.py:{line + 1}\)"
    with pytest.raises(DlcError, match=expected):
        dlc.jit(function).lower(KEY)


def test_invalid_keys() -> None:
    with pytest.raises(DTypeError, match=r"normal: a key of dtype int64; expected uint32: create one with dlc\.random\.key"):
        normal(3)
    with pytest.raises(ShapeError, match=r"uniform: a key of shape \(3, 2\); expected \(2,\)"):
        uniform(split(KEY, 3))
    with pytest.raises(DTypeError, match="seed has dtype float64"):
        key(0.5)


def test_a_stream_has_keys_one_after_another() -> None:
    keys = dlc.random.Stream(0)
    first, second = next(keys), next(keys)
    np.testing.assert_array_equal([first, second], [fold_in(KEY, 0), fold_in(KEY, 1)])
