"""Learns to write like dlc's documentation, letter by letter: a small GPT, which then goes on from a few words.

python examples/write_docs.py [STEPS] [WORDS]
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import nn, optim

DOCS = Path(__file__).parents[1] / "docs"
WIDTH, HEADS, BLOCKS, LENGTH, BATCH = 64, 4, 2, 64, 16
PAGES = ("architecture.md", "control_flow.md", "debugging.md", "decisions.md", "extending.md", "fuzzing.md", "performance.md")


def text_of_docs() -> np.ndarray:
    """The pages as bytes; other characters than those of ASCII are question marks."""
    text = "\n".join((DOCS / page).read_text() for page in PAGES)
    return np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int32)


def init(seed):
    keys = dlc.random.Stream(seed)

    def dense(inputs, outputs):
        return {"w": nn.init.normal(next(keys), (inputs, outputs), scale=inputs**-0.5), "b": np.zeros(outputs, np.float32)}

    def norm():
        return {"scale": np.ones(WIDTH, np.float32), "bias": np.zeros(WIDTH, np.float32)}

    def block():
        ways = {"qkv": dense(WIDTH, 3 * WIDTH), "out": dense(WIDTH, WIDTH), "up": dense(WIDTH, 4 * WIDTH)}
        return {**ways, "down": dense(4 * WIDTH, WIDTH), "before": norm(), "between": norm()}

    tables = {"letters": nn.init.normal(next(keys), (128, WIDTH)), "places": nn.init.normal(next(keys), (LENGTH, WIDTH))}
    return {**tables, "blocks": [block() for _ in range(BLOCKS)], "norm": norm(), "head": dense(WIDTH, 128)}


def dense(x, p):
    return nn.dense(x, p["w"], p["b"])


def norm(x, p):
    return nn.layer_norm(x, p["scale"], p["bias"])


def apply(params, letters):
    """The logits of the letter after each of letters [N, T]."""

    def heads(x):
        return x.reshape(*x.shape[:-1], HEADS, WIDTH // HEADS).swapaxes(1, 2)

    x = nn.embedding(params["letters"], letters) + params["places"][: letters.shape[1]]
    for block in params["blocks"]:
        q, k, v = (heads(part) for part in dnp.split(dense(norm(x, block["before"]), block["qkv"]), 3, axis=-1))
        x = x + dense(nn.attention(q, k, v, causal=True).swapaxes(1, 2).reshape(*x.shape), block["out"])
        x = x + dense(nn.gelu(dense(norm(x, block["between"]), block["up"])), block["down"])
    return dense(norm(x, params["norm"]), params["head"])


def loss_of(params, letters):
    return nn.softmax_cross_entropy(apply(params, letters[:, :-1]), letters[:, 1:]).mean()


@dlc.jit
def next_letter(params, letters, last, key):
    """A letter to follow letters [LENGTH] of which `last` is the place of the last one."""
    return dlc.random.categorical(key, apply(params, letters[None])[0, last] / 0.7)


def train(text: np.ndarray, steps: int) -> tuple[dict, float]:
    """The parameters after so many steps, and the loss of the last one."""
    optimizer = optim.chain(
        optim.clip_by_global_norm(1.0), optim.adamw(optim.cosine_schedule(3e-3, steps, warmup=steps // 20), weight_decay=0.1)
    )

    @dlc.jit
    def step(params, state, key, text):
        # A batch of places to begin at.
        starts = dlc.random.randint(key, (BATCH, 1), 0, len(text) - LENGTH - 1)
        loss, grads = dlc.value_and_grad(loss_of)(params, text[starts + np.arange(LENGTH + 1)])
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss

    params, keys, loss = init(0), dlc.random.Stream(1), np.nan
    state = optimizer.init(params)
    for number in range(steps):
        params, state, loss = step(params, state, next(keys), text)
        if number % 200 == 0:
            print(f"step {number}: loss {float(loss):.3f}", file=sys.stderr)
    return params, float(loss)


def written(params: dict, begin: str, count: int = 200) -> str:
    """The text with so many letters after it."""
    text, keys = begin, dlc.random.Stream(2)
    for _ in range(count):
        seen = text[-LENGTH:].encode("ascii", "replace")
        letters = np.zeros(LENGTH, np.int32)
        letters[: len(seen)] = list(seen)
        text += chr(int(next_letter(params, letters, np.int32(len(seen) - 1), next(keys))))
    return text


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    text = text_of_docs()
    began = perf_counter()
    params, loss = train(text, steps)
    print(f"{len(text)} letters, loss {loss:.3f} after {steps} steps in {perf_counter() - began:.1f} s")
    print(written(params, sys.argv[2] if len(sys.argv) > 2 else "A kernel "))


if __name__ == "__main__":
    main()
