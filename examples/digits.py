"""Train a small convolutional network to classify handwritten digits.

    python examples/digits.py [CURVE.svg]

A whole training step (forward, backward and AdamW) is one compiled function. The 1,797 images of 8×8 pixels come with
scikit-learn (`pip install scikit-learn`); a fifth of them is held out for the test. CURVE.svg, if given, is a plot of the loss
of every step.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from sklearn.datasets import load_digits

import dlc
import dlc.numpy as dnp
from dlc import nn, optim

EPOCHS, BATCH = 25, 64


def init(key):
    """Return the initial parameters."""
    keys = dlc.random.split(key, 4)
    return {
        "first": {"w": nn.init.he(keys[0], (3, 3, 1, 16)), "b": np.zeros(16, np.float32)},
        "second": {"w": nn.init.he(keys[1], (3, 3, 16, 32)), "b": np.zeros(32, np.float32)},
        "hidden": {"w": nn.init.he(keys[2], (128, 64)), "b": np.zeros(64, np.float32)},
        "last": {"w": nn.init.lecun(keys[3], (64, 10)), "b": np.zeros(10, np.float32)},
    }


def apply(params, images, key=None):
    """Return the logits of images [N, 8, 8, 1], with dropout if `key` is given."""
    x = images
    for name in ("first", "second"):
        x = nn.max_pool(nn.relu(nn.conv(x, params[name]["w"], params[name]["b"], padding="same")), 2)
    x = nn.relu(nn.dense(x.reshape(len(x), -1), params["hidden"]["w"], params["hidden"]["b"]))
    if key is not None:
        x = nn.dropout(key, x, rate=0.2)
    return nn.dense(x, params["last"]["w"], params["last"]["b"])


def loss_of(params, images, labels, key):
    return nn.softmax_cross_entropy(apply(params, images, key), labels).mean()


@dlc.jit
def predict(params, images):
    return dnp.argmax(apply(params, images), axis=-1)


def train(images: np.ndarray, labels: np.ndarray) -> tuple[dict, list[float]]:
    """Return the trained parameters and the loss of each step."""
    steps = EPOCHS * (len(images) // BATCH)
    optimizer = optim.adamw(optim.cosine_schedule(5e-3, steps, warmup=20), weight_decay=0.01)
    keys = dlc.random.Stream(0)
    params = init(next(keys))
    state, losses = optimizer.init(params), []

    @dlc.jit
    def step(params, state, key, images, labels):
        loss, grads = dlc.value_and_grad(loss_of)(params, images, labels, key)
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state, loss

    for _ in range(EPOCHS):
        order = dlc.random.permutation(next(keys), len(images))
        for first in range(0, len(images) - BATCH + 1, BATCH):
            batch = order[first : first + BATCH]
            params, state, loss = step(params, state, next(keys), images[batch], labels[batch])
            losses.append(float(loss))
    return params, losses


def plot(losses: list[float]) -> str:
    """Plot the losses on a logarithmic scale, as an SVG image."""
    heights = np.log10(losses)
    x = np.linspace(10, 590, len(losses))
    y = 290 - 280 * (heights - heights.min()) / max(np.ptp(heights), 1e-9)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    title = f"<title>loss, from {losses[0]:.2f} to {losses[-1]:.4f} in {len(losses)} steps</title>"
    line = f'<polyline fill="none" stroke="#2a6fb0" points="{points}"/>'
    page = f'{title}<path fill="white" d="M0 0H600V300H0z"/>{line}'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 300">{page}</svg>\n'


def main() -> None:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    images = (digits.images[order, :, :, None] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    n_test = len(images) // 5
    start = perf_counter()
    params, losses = train(images[n_test:], labels[n_test:])
    seconds = perf_counter() - start
    accuracy = np.mean(np.asarray(predict(params, images[:n_test])) == labels[:n_test])
    print(f"{accuracy:.1%} of {n_test} test images correct after {len(losses)} steps in {seconds:.1f} s, loss {losses[-1]:.4f}")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(plot(losses))


if __name__ == "__main__":
    main()
