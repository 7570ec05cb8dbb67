"""Train a network on several processes: data parallel, with the optimizer's state sharded over them.

    mpiexec -n 2 python -m mpi4py examples/data_parallel.py 2
    python examples/data_parallel.py                 # one process

The step is written for one process. `in_shardings` splits the batch and Adam's moments (ZeRO stage 1). The compiler inserts a
reduce_scatter of gradients, an all_gather of parameters, and an all_reduce of the loss.
"""

from __future__ import annotations

import sys

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import P, nn, optim

STEPS, BATCH, WIDTH = 200, 64, 64


def init(key):
    """Return the initial parameters."""
    first, second = dlc.random.split(key, 2)
    return {
        "first": {"w": nn.init.he(first, (2, WIDTH)), "b": np.zeros(WIDTH, np.float32)},
        "second": {"w": nn.init.lecun(second, (WIDTH, 2)), "b": np.zeros(2, np.float32)},
    }


def loss_of(params, points, labels):
    hidden = dnp.tanh(nn.dense(points, params["first"]["w"], params["first"]["b"]))
    logits = nn.dense(hidden, params["second"]["w"], params["second"]["b"])
    return nn.softmax_cross_entropy(logits, labels).mean(), (dnp.argmax(logits, axis=-1) == labels).mean(dtype=np.float32)


def spirals(rng, count):
    """Return points of two interleaved spirals, and the spiral of each point."""
    labels = rng.integers(0, 2, count).astype(np.int32)
    radius = rng.random(count).astype(np.float32) * 3
    angle = radius * 2 + labels * np.float32(np.pi)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32), labels


def main() -> None:
    mesh = dlc.make_mesh({"data": int(sys.argv[1]) if len(sys.argv) > 1 else 1})
    optimizer = optim.adam(0.02)
    params = init(dlc.random.key(0))
    state = optimizer.init(params)
    # Split what has an axis that the mesh divides.
    split = dlc.tree.map(lambda x: P("data") if np.ndim(x) and len(x) % mesh.size == 0 else P(), state)

    @dlc.jit(mesh=mesh, in_shardings=(P(), split, P("data"), P("data")), out_shardings=(P(), split, P(), P()))
    def step(params, state, points, labels):
        (loss, accuracy), grads = dlc.value_and_grad(loss_of, has_aux=True)(params, points, labels)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss, accuracy

    # All ranks draw the same batches; each keeps its shard.
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        params, state, loss, accuracy = step(params, state, *spirals(rng, BATCH))
    print(f"loss {float(loss):.4f}, {float(accuracy):.0%} of the last batch correct, on {mesh.size} processes")


if __name__ == "__main__":
    main()
