"""Train a small character-level GPT on several processes, each of which computes some of its heads and hidden units.

    mpiexec -n 2 python -m mpi4py examples/tensor_parallel.py 2
    python examples/tensor_parallel.py                 # one process

The model is written for one process. Annotations split columns of the first product of each pair and rows of the second one, as
in Megatron. The compiler splits attention by heads, and inserts two all_reduces per block forward and two backward.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import dlc
from dlc import P, nn, optim

TEXT = Path(__file__).parents[1] / "docs" / "distributed.md"
WIDTH, HEADS, BLOCKS, LENGTH, BATCH, STEPS = 64, 4, 2, 32, 16, 100
# Columns of the first products, rows of the second ones.
SPLIT = dict.fromkeys(("query", "key", "value", "up"), P(None, "model")) | dict.fromkeys(("out", "down"), P("model"))


def init(seed):
    """Return the initial parameters."""
    keys = dlc.random.Stream(seed)

    def matrix(rows, columns):
        return nn.init.normal(next(keys), (rows, columns), scale=rows**-0.5)

    def block():
        attention = {name: matrix(WIDTH, WIDTH) for name in ("query", "key", "value", "out")}
        return {**attention, "up": matrix(WIDTH, 4 * WIDTH), "down": matrix(4 * WIDTH, WIDTH)}

    embeddings = {"tokens": matrix(128, WIDTH), "positions": matrix(LENGTH, WIDTH)}
    return {**embeddings, "blocks": [block() for _ in range(BLOCKS)], "head": matrix(WIDTH, 128)}


def norm(x):
    return nn.layer_norm(x, np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32))


def heads(x):
    return x.reshape(*x.shape[:-1], HEADS, WIDTH // HEADS).swapaxes(1, 2)


def loss_of(params, tokens):
    """Return the mean loss of the next token, for tokens [N, LENGTH + 1]."""
    x = nn.embedding(params["tokens"], tokens[:, :-1]) + params["positions"]
    for block in params["blocks"]:
        h = norm(x)
        q, k, v = (heads(h @ block[name]) for name in ("query", "key", "value"))
        x = x + nn.attention(q, k, v, causal=True).swapaxes(1, 2).reshape(*x.shape) @ block["out"]
        x = x + nn.gelu(norm(x) @ block["up"]) @ block["down"]
    return nn.softmax_cross_entropy(norm(x) @ params["head"], tokens[:, 1:]).mean()


def main() -> None:
    mesh = dlc.make_mesh({"model": int(sys.argv[1]) if len(sys.argv) > 1 else 1})
    optimizer, params = optim.adam(3e-3), init(0)
    state = optimizer.init(params)
    specs = {**dict.fromkeys(params, P()), "blocks": [SPLIT] * BLOCKS}

    # The sharding of the optimizer's state follows from that of the parameters.
    @dlc.jit(mesh=mesh, in_shardings=(specs, None, P()), out_shardings=(specs, None, P()))
    def step(params, state, tokens):
        loss, grads = dlc.value_and_grad(loss_of)(params, tokens)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss

    # All ranks draw the same batches.
    text = np.frombuffer(TEXT.read_text().encode("ascii", "replace"), np.uint8).astype(np.int32)
    rng, loss = np.random.default_rng(0), np.nan
    for _ in range(STEPS):
        starts = rng.integers(0, len(text) - LENGTH - 1, (BATCH, 1))
        params, state, loss = step(params, state, text[starts + np.arange(LENGTH + 1)])
    program = step.lower(params, state, np.zeros((BATCH, LENGTH + 1), np.int32)).as_text("sharding")
    print(f"loss {float(loss):.4f} on {mesh.size} processes, with {program.count('// dl.all_reduce')} all_reduces per step")


if __name__ == "__main__":
    main()
