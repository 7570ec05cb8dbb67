"""Train with ZeRO on several processes: optimizer state, gradients and parameters are split over them; save and resume.

    mpiexec -n 2 python -m mpi4py examples/zero.py --ranks 2 --stage 3 --save checkpoint
    mpiexec -n 4 python -m mpi4py examples/zero.py --ranks 4 --stage 1 --resume checkpoint
    python examples/zero.py                          # one process

Every stage is a matter of annotations (Rajbhandari et al., 2020). Stage 1 splits Adam's moments; stage 2 also the gradients
that are accumulated over micro-batches; stage 3 also the parameters. The compiler inserts a reduce_scatter of gradients and an
all_gather of parameters. Each process looks up the rows of the embedding table that it has.
"""

from __future__ import annotations

import argparse

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import P, nn, optim

STEPS, MICRO_BATCHES, BATCH, CONTEXT, WIDTH = 60, 2, 32, 8, 64
TEXT = "the quick brown fox jumps over the lazy dog and the lazy dog sleeps under the brown tree. " * 20
IDS = np.frombuffer(TEXT.encode(), np.uint8).astype(np.int32)


def init(key):
    """Return the initial parameters."""
    table, hidden, output = dlc.random.split(key, 3)
    return {
        "table": 0.1 * dlc.random.normal(table, (256, WIDTH)),
        "hidden": {"w": nn.init.he(hidden, (CONTEXT * WIDTH, WIDTH)), "b": np.zeros(WIDTH, np.float32)},
        "output": {"w": nn.init.lecun(output, (WIDTH, 256)), "b": np.zeros(256, np.float32)},
    }


def loss_of(params, ids):
    """Return the mean cross-entropy of the next byte; `ids` has CONTEXT + 1 bytes per example."""
    context = nn.embedding(params["table"], ids[:, :-1]).reshape(len(ids), -1)
    hidden = nn.gelu(nn.dense(context, params["hidden"]["w"], params["hidden"]["b"]))
    return nn.softmax_cross_entropy(nn.dense(hidden, params["output"]["w"], params["output"]["b"]), ids[:, -1]).mean()


def split_over_data(tree, mesh):
    """Return specs that split axis 0 of the arrays whose size is a multiple of the number of ranks."""
    return dlc.tree.map(lambda x: P("data") if np.ndim(x) and len(x) % mesh.size == 0 else P(), tree)


def local_bytes(tree) -> int:
    """Return the bytes that this process stores of a tree of arrays."""
    return sum(getattr(x, "shard", x).nbytes for x in dlc.tree.leaves(tree))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--stage", type=int, default=1)
    parser.add_argument("--save")
    parser.add_argument("--resume")
    arguments = parser.parse_args()

    mesh, optimizer = dlc.make_mesh({"data": arguments.ranks}), optim.adam(0.003)
    params = init(dlc.random.key(0))
    state = optimizer.init(params)
    split_params, split_state = split_over_data(params, mesh), split_over_data(state, mesh)
    param_specs = split_params if arguments.stage >= 3 else dlc.tree.map(lambda _: P(), params)
    if arguments.resume:
        params, state = dlc.load_arrays(arguments.resume, (params, state), (param_specs, split_state), mesh)

    def accumulate(gradients, new):
        total = dlc.tree.map(dnp.add, gradients, new)
        return dlc.tree.map(dlc.shard, total, split_params) if arguments.stage >= 2 else total

    @dlc.jit(mesh=mesh, in_shardings=(param_specs, split_state, P(None, "data")), out_shardings=(param_specs, split_state, P()))
    def step(params, state, batches):
        def micro_step(gradients, ids):
            loss, new = dlc.value_and_grad(loss_of)(params, ids)
            return accumulate(gradients, new), loss

        gradients, losses = dlc.lax.scan(micro_step, dlc.tree.map(dnp.zeros_like, params), batches)
        updates, state = optimizer.update(dlc.tree.map(lambda g: g / MICRO_BATCHES, gradients), state, params)
        return optim.apply_updates(params, updates), state, losses.mean()

    # All ranks draw the same batches; each keeps its shard.
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        starts = rng.integers(0, len(IDS) - CONTEXT - 1, (MICRO_BATCHES, BATCH))
        params, state, loss = step(params, state, IDS[starts[..., None] + np.arange(CONTEXT + 1)])
    if arguments.save:
        dlc.save_arrays(arguments.save, (params, state))
    sizes = f"{local_bytes(params)} bytes of parameters and {local_bytes(state)} of optimizer state"
    print(f"loss {float(loss):.4f}; each of {mesh.size} processes stores {sizes}")


if __name__ == "__main__":
    main()
