"""Train a neural ODE: learn the right-hand side of a differential equation from the end points of its trajectories.

    python examples/neural_ode.py [STEPS]

The solver is a `dlc.lax.while_loop` with an adaptive step size, and gradients are propagated through the loop. The network is
trained on trajectories of duration 1, then compared with the true motion for durations 0.5 to 4. STEPS (default: 1000) is the
number of training steps.
"""

from __future__ import annotations

import sys
from time import perf_counter

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import nn, optim

DURATION, TOLERANCE = 1.0, 1e-3


def solve(velocity, x, duration):
    """Integrate points [N, 2] for a duration with Heun's method; return the end points and the number of steps."""

    def advance(state):
        x, time, step, num_steps = state
        step = dnp.minimum(step, duration - time)
        k1 = velocity(x)
        k2 = velocity(x + step * k1)
        error = dnp.max(dnp.abs(step / 2 * (k2 - k1)))
        # The choice of the step size is not differentiated.
        factor = dlc.stop_gradient(dnp.clip(0.9 * dnp.sqrt(TOLERANCE / (error + 1e-9)), 0.3, 3.0))
        accepted = error <= TOLERANCE
        x, time = dnp.where(accepted, x + step / 2 * (k1 + k2), x), dnp.where(accepted, time + step, time)
        return x, time, step * factor, num_steps + 1

    initial = (x, np.float32(0), np.float32(0.1), np.int32(0))
    x, _, _, num_steps = dlc.lax.while_loop(lambda state: state[1] < duration - 1e-6, advance, initial)
    return x, num_steps


def true_velocity(x):
    """Return the velocity of points that spiral into the origin."""
    return x @ np.array([[-0.2, 2.0], [-2.0, -0.2]], np.float32)


def learned_velocity(params):
    """Return the network as a function from points to velocities."""
    return lambda x: nn.dense(dnp.tanh(nn.dense(x, params["w"], params["b"])), params["out"])


@dlc.jit
def true_end(x, duration):
    return solve(true_velocity, x, duration)[0]


@dlc.jit
def predicted_end(params, x, duration):
    return solve(learned_velocity(params), x, duration)


def train(steps: int) -> tuple[dict, float]:
    """Return the trained parameters and the loss of the last step."""
    w_key, out_key, points_key = dlc.random.split(dlc.random.key(0), 3)
    params = {"w": nn.init.glorot(w_key, (2, 32)), "b": np.zeros(32, np.float32), "out": nn.init.glorot(out_key, (32, 2))}
    optimizer = optim.adam(optim.cosine_schedule(0.03, steps))
    start = dlc.random.uniform(points_key, (64, 2), np.float32, -1.5, 1.5)
    end = true_end(start, np.float32(DURATION))

    @dlc.jit
    def step(params, state, start, end):
        def loss_of(params):
            return nn.mse(solve(learned_velocity(params), start, np.float32(DURATION))[0], end)

        loss, grads = dlc.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss

    state, loss = optimizer.init(params), np.nan
    for _ in range(steps):
        params, state, loss = step(params, state, start, end)
    return params, float(loss)


def main() -> None:
    start_time = perf_counter()
    params, loss = train(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    print(f"loss {loss:.6f} after {perf_counter() - start_time:.1f} s")
    start = np.array([[1.0, 0.0]], np.float32)
    for duration in np.array([0.5, 1, 2, 4], np.float32):
        end, num_steps = predicted_end(params, start, duration)
        got, expected = (np.round(np.asarray(x)[0], 2) for x in (end, true_end(start, duration)))
        print(f"after {duration:g}: {got} in {int(num_steps)} steps, expected {expected}")


if __name__ == "__main__":
    main()
