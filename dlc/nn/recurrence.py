"""Recurrence: one step of a network with a state; `dlc.lax.scan` makes the loop."""

from __future__ import annotations

from typing import Any

from dlc.errors import ShapeError
from dlc.nn.activations import sigmoid
from dlc.numpy import add, matmul, multiply, split, subtract, tanh
from dlc.numpy.apply import ArrayLike, Operand, promote_to_float, refuse

__all__ = ["gru_cell", "lstm_cell"]


def lstm_cell(x: ArrayLike, state: tuple[ArrayLike, ArrayLike], w: ArrayLike, u: ArrayLike, b: ArrayLike, /) -> tuple[Any, Any]:
    """The next (h, c) of a long short-term memory, for x [..., I], w [I, 4H], u [H, 4H] and b [4H].

    In the order of columns: i, f, o = σ(·), g = tanh(·) stands third; c' = f · c + i · g, h' = o · tanh(c').
    """
    x, h, c, w, u, b = promote_to_float(x, *state, w, u, b)
    i, f, g, o = split(add(add(matmul(x, w), matmul(h, u)), b), _gates("lstm_cell", w, 4), axis=-1)
    c = add(multiply(sigmoid(f), c), multiply(sigmoid(i), tanh(g)))
    return multiply(sigmoid(o), tanh(c)), c


def gru_cell(x: ArrayLike, h: ArrayLike, w: ArrayLike, u: ArrayLike, b: ArrayLike, b_state: ArrayLike = 0.0, /) -> Any:
    """The next h of a gated recurrent unit, for x [..., I], w [I, 3H], u [H, 3H], b [3H] and b_state [3H], added to h · u.

    In the order of columns: r, z = σ(·), n = tanh(x · w + b + r · (h · u + b_state)); h' = (1 - z) · n + z · h.
    """
    x, h, w, u, b, b_state = promote_to_float(x, h, w, u, b, b_state)
    count = _gates("gru_cell", w, 3)
    new, old = (split(part, count, axis=-1) for part in (add(matmul(x, w), b), add(matmul(h, u), b_state)))
    r, z = (sigmoid(add(new[k], old[k])) for k in range(2))
    n = tanh(add(new[2], multiply(r, old[2])))
    return add(n, multiply(z, subtract(h, n)))


def _gates(name: str, w: Operand, count: int) -> int:
    """How many gates the columns are of; raises ShapeError where they are not of so many."""
    if not w.ndim or w.shape[-1] % count:
        columns = w.shape[-1] if w.ndim else "no"
        refuse(ShapeError(f"dlc.nn.{name}: w has {columns} columns; expected {count} for each element of the state"))
    return count
