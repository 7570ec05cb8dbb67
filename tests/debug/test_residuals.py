"""Residuals of a derivative."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc.debug import saved_residuals

W, X = np.ones((4, 5), np.float32), np.ones((3, 4), np.float32)


def layer(w: Any, x: Any) -> Any:
    return dnp.tanh(x @ w) * 3


def loss(w: Any, x: Any) -> Any:
    return dnp.sum(layer(w, x) ** 2)


def test_results_are_residuals_rather_than_operands() -> None:
    found = saved_residuals(dlc.grad(loss), W, X)
    assert [(r.op, r.shape) for r in found] == [("argument", (3, 4)), ("dl.tanh", (3, 5)), ("dl.mul", (3, 5))]
    tanh = found[1]
    assert (tanh.dtype, tanh.bytes) == ("float32", 60) and "test_residuals.py:" in tanh.location
    assert str(tanh) == f"float32[3, 5], 60 bytes: dl.tanh {tanh.location}"


def test_arguments_of_recomputed_ops_are_residuals() -> None:
    again = saved_residuals(dlc.grad(lambda w, x: dnp.sum(dlc.checkpoint(layer)(w, x))), W, X)
    assert {r.op for r in again} == {"argument"}


def test_loops_store_sequences() -> None:
    def many(w: Any) -> Any:
        return dlc.lax.fori_loop(0, 7, lambda _, y: dnp.sin(y), w).sum()

    kept = saved_residuals(dlc.grad(many), X)
    assert [(r.op, r.shape) for r in kept] == [("dl.scan", (7, 3, 4))]
    assert saved_residuals(many, X) == []
