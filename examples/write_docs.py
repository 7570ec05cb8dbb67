"""Train a small character-level GPT on dlc's documentation, then generate text with it.

    python examples/write_docs.py [STEPS] [PROMPT]

STEPS (default: 1000) is the number of training steps; PROMPT (default: "A kernel ") is the beginning of the generated text.
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


def load_docs() -> np.ndarray:
    """Load the pages as ASCII codes int32[N]; other characters become question marks."""
    text = "\n".join((DOCS / page).read_text() for page in PAGES)
    return np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int32)


def init(seed):
    """Return the initial parameters."""
    keys = dlc.random.Stream(seed)

    def dense(inputs, outputs):
        return {"w": nn.init.normal(next(keys), (inputs, outputs), scale=inputs**-0.5), "b": np.zeros(outputs, np.float32)}

    def norm():
        return {"scale": np.ones(WIDTH, np.float32), "bias": np.zeros(WIDTH, np.float32)}

    def block():
        layers = {"qkv": dense(WIDTH, 3 * WIDTH), "out": dense(WIDTH, WIDTH), "up": dense(WIDTH, 4 * WIDTH)}
        return {**layers, "down": dense(4 * WIDTH, WIDTH), "attention_norm": norm(), "mlp_norm": norm()}

    embeddings = {
        "tokens": nn.init.normal(next(keys), (128, WIDTH)),
        "positions": nn.init.normal(next(keys), (LENGTH, WIDTH)),
    }
    return {**embeddings, "blocks": [block() for _ in range(BLOCKS)], "norm": norm(), "head": dense(WIDTH, 128)}


def dense(x, p):
    return nn.dense(x, p["w"], p["b"])


def norm(x, p):
    return nn.layer_norm(x, p["scale"], p["bias"])


def apply(params, tokens):
    """Return the logits of the token after each of tokens [N, T]."""

    def heads(x):
        return x.reshape(*x.shape[:-1], HEADS, WIDTH // HEADS).swapaxes(1, 2)

    x = nn.embedding(params["tokens"], tokens) + params["positions"][: tokens.shape[1]]
    for block in params["blocks"]:
        q, k, v = (heads(y) for y in dnp.split(dense(norm(x, block["attention_norm"]), block["qkv"]), 3, axis=-1))
        x = x + dense(nn.attention(q, k, v, causal=True).swapaxes(1, 2).reshape(*x.shape), block["out"])
        x = x + dense(nn.gelu(dense(norm(x, block["mlp_norm"]), block["up"])), block["down"])
    return dense(norm(x, params["norm"]), params["head"])


def loss_of(params, tokens):
    return nn.softmax_cross_entropy(apply(params, tokens[:, :-1]), tokens[:, 1:]).mean()


@dlc.jit
def sample_next(params, tokens, last, key):
    """Sample the token after position `last` of tokens [LENGTH]; later positions are ignored."""
    return dlc.random.categorical(key, apply(params, tokens[None])[0, last] / 0.7)


def train(text: np.ndarray, steps: int) -> tuple[dict, float]:
    """Return the trained parameters and the loss of the last step."""
    optimizer = optim.chain(
        optim.clip_by_global_norm(1.0), optim.adamw(optim.cosine_schedule(3e-3, steps, warmup=steps // 20), weight_decay=0.1)
    )

    @dlc.jit
    def step(params, state, key, text):
        # The first positions of the sequences of a batch.
        starts = dlc.random.randint(key, (BATCH, 1), 0, len(text) - LENGTH - 1)
        loss, grads = dlc.value_and_grad(loss_of)(params, text[starts + np.arange(LENGTH + 1)])
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss

    params, keys, loss = init(0), dlc.random.Stream(1), np.nan
    state = optimizer.init(params)
    for k in range(steps):
        params, state, loss = step(params, state, next(keys), text)
        if k % 200 == 0:
            print(f"step {k}: loss {float(loss):.3f}", file=sys.stderr)
    return params, float(loss)


def generate(params: dict, prompt: str, count: int = 200) -> str:
    """Continue the prompt with `count` characters."""
    text, keys = prompt, dlc.random.Stream(2)
    for _ in range(count):
        context = text[-LENGTH:].encode("ascii", "replace")
        tokens = np.zeros(LENGTH, np.int32)
        tokens[: len(context)] = list(context)
        text += chr(int(sample_next(params, tokens, np.int32(len(context) - 1), next(keys))))
    return text


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    text = load_docs()
    start = perf_counter()
    params, loss = train(text, steps)
    print(f"{len(text)} characters, loss {loss:.3f} after {steps} steps in {perf_counter() - start:.1f} s")
    print(generate(params, sys.argv[2] if len(sys.argv) > 2 else "A kernel "))


if __name__ == "__main__":
    main()
