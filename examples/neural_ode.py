"""Learns the equation of a motion from where it leads: a neural network as the right side of a differential equation.

    python examples/neural_ode.py [STEPS]

The solver takes steps as long as its own estimate of the error allows, in a loop that ends when the time is over; gradients
go through that loop. What is learned from one duration is then tried for longer ones.
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import nn, optim

DURATION, TOLERANCE = 1.0, 1e-3


def solved(velocity, x, duration):
    """Where points [N, 2] are after a time, by Heun's method with steps of their own length."""

    def advance(state):
        x, time, step, taken = state
        step = dnp.minimum(step, duration - time)
        k1 = velocity(x)
        k2 = velocity(x + step * k1)
        error = dnp.max(dnp.abs(step / 2 * (k2 - k1)))
        # The length is a decision, not a result: nothing is learned from it.
        factor = dlc.stop_gradient(dnp.clip(0.9 * dnp.sqrt(TOLERANCE / (error + 1e-9)), 0.3, 3.0))
        good = error <= TOLERANCE
        return dnp.where(good, x + step / 2 * (k1 + k2), x), dnp.where(good, time + step, time), step * factor, taken + 1

    start = (x, np.float32(0), np.float32(0.1), np.int32(0))
    x, _, _, taken = dlc.lax.while_loop(lambda state: state[1] < duration - 1e-6, advance, start)
    return x, taken


def spiral(x):
    """The motion that is to be found."""
    return x @ np.array([[-0.2, 2.0], [-2.0, -0.2]], np.float32)


def learned(params):
    """The motion as the network has it."""
    return lambda x: nn.dense(dnp.tanh(nn.dense(x, params["w"], params["b"])), params["out"])


@dlc.jit
def truth(x, duration):
    return solved(spiral, x, duration)[0]


@dlc.jit
def predicted(params, x, duration):
    return solved(learned(params), x, duration)


def train(steps: int) -> tuple[dict, float]:
    """Parameters, and the loss of the last step."""
    first, second, points = dlc.random.split(dlc.random.key(0), 3)
    params = {"w": nn.init.glorot(first, (2, 32)), "b": np.zeros(32, np.float32), "out": nn.init.glorot(second, (32, 2))}
    optimizer = optim.adam(optim.cosine_schedule(0.03, steps))
    start = dlc.random.uniform(points, (64, 2), np.float32, -1.5, 1.5)
    end = truth(start, np.float32(DURATION))

    @dlc.jit
    def step(params, state, start, end):
        def loss_of(params):
            return nn.mse(solved(learned(params), start, np.float32(DURATION))[0], end)

        loss, grads = dlc.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss

    state, loss = optimizer.init(params), np.nan
    for _ in range(steps):
        params, state, loss = step(params, state, start, end)
    return params, float(loss)


def main() -> None:
    began = perf_counter()
    params, loss = train(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    print(f"loss {loss:.6f} after {perf_counter() - began:.1f} s")
    start = np.array([[1.0, 0.0]], np.float32)
    for duration in np.array([0.5, 1, 2, 4], np.float32):
        end, taken = predicted(params, start, duration)
        expected = np.asarray(truth(start, duration))[0]
        print(f"after {duration:g}: {np.round(np.asarray(end)[0], 2)} in {int(taken)} steps, expected {np.round(expected, 2)}")


if __name__ == "__main__":
    main()
