"""Recurrent cells: one step of a recurrent network; `dlc.lax.scan` makes the loop."""

from __future__ import annotations

from typing import Any

from dlc.errors import ShapeError
from dlc.nn.activations import sigmoid
from dlc.numpy import add, matmul, multiply, split, subtract, tanh
from dlc.numpy.apply import ArrayLike, Operand, promote_to_float, refuse

__all__ = ["gru_cell", "lstm_cell"]


def lstm_cell(x: ArrayLike, state: tuple[ArrayLike, ArrayLike], w: ArrayLike, u: ArrayLike, b: ArrayLike, /) -> tuple[Any, Any]:
    """Return the next (h, c) of an LSTM cell for x [..., I], w [I, 4H], u [H, 4H] and b [4H].

    Columns are in the order i, f, g, o: i, f, o = σ(·), g = tanh(·); c' = f · c + i · g, h' = o · tanh(c').
    """
    x, h, c, w, u, b = promote_to_float(x, *state, w, u, b)
    i, f, g, o = split(add(add(matmul(x, w), matmul(h, u)), b), _gates("lstm_cell", w, 4), axis=-1)
    c = add(multiply(sigmoid(f), c), multiply(sigmoid(i), tanh(g)))
    return multiply(sigmoid(o), tanh(c)), c


def gru_cell(x: ArrayLike, h: ArrayLike, w: ArrayLike, u: ArrayLike, b: ArrayLike, b_state: ArrayLike = 0.0, /) -> Any:
    """Return the next h of a GRU cell for x [..., I], w [I, 3H], u [H, 3H], b [3H] and b_state [3H], which is added to h · u.

    Columns are in the order r, z, n: r, z = σ(·), n = tanh(x · w + b + r · (h · u + b_state)); h' = (1 - z) · n + z · h.
    """
    x, h, w, u, b, b_state = promote_to_float(x, h, w, u, b, b_state)
    count = _gates("gru_cell", w, 3)
    new, old = (split(projection, count, axis=-1) for projection in (add(matmul(x, w), b), add(matmul(h, u), b_state)))
    r, z = (sigmoid(add(new[k], old[k])) for k in range(2))
    n = tanh(add(new[2], multiply(r, old[2])))
    return add(n, multiply(z, subtract(h, n)))


def _gates(name: str, w: Operand, count: int) -> int:
    """Return `count`, the number of gates. Raises ShapeError if the columns of w do not divide into that many gates."""
    if not w.ndim or w.shape[-1] % count:
        columns = w.shape[-1] if w.ndim else "no"
        refuse(ShapeError(f"dlc.nn.{name}: w has {columns} columns; expected {count} (gates) for each element of the state"))
    return count
