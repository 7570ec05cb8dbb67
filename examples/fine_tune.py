"""Fine-tune the last layer of an ONNX model with `dlc train`; all other layers stay as they are.

    python examples/fine_tune.py [-o TUNED.onnx]

The model recognizes handwritten digits (MNIST). It is tuned for the digits of a seven-segment display, which this program draws
with random positions, sizes and thickness, and with noise. Prints the accuracy on 200 test images before and after.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path

import numpy as np

import dlc
from dlc.cli import main as command_line

MODEL = Path(__file__).parents[1] / "tests" / "models" / "small" / "mnist_cnn.onnx"
# The start and end of each segment as (row, column) in a grid of 2×1 squares, and the segments of each digit.
SEGMENTS = {
    "a": ((0, 0), (0, 1)),
    "b": ((0, 1), (1, 1)),
    "c": ((1, 1), (2, 1)),
    "d": ((2, 0), (2, 1)),
    "e": ((1, 0), (2, 0)),
    "f": ((0, 0), (1, 0)),
    "g": ((1, 0), (1, 1)),
}
DIGITS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")


def draw(digit: int, random: np.random.Generator) -> np.ndarray:
    """Draw a digit as an image [1, 28, 28], bright on dark."""
    image = random.uniform(0, 0.1, (28, 28))
    top, left, length, thickness = random.integers((2, 4, 7, 1), (6, 12, 10, 4))
    for name in DIGITS[digit]:
        (row, column), (last_row, last_column) = np.array(SEGMENTS[name]) * length + (top, left)
        image[row : last_row + thickness, column : last_column + thickness] = random.uniform(0.7, 1)
    return image[np.newaxis].astype(np.float32)


def accuracy(path: Path, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images that a model classifies correctly; the model takes one image per call."""
    model = dlc.compile_model(path)
    return float(
        np.mean([np.argmax(model(image[np.newaxis])["probs"]) == label for image, label in zip(images, labels, strict=True)])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("tuned.onnx"))
    tuned = parser.parse_args().output
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, 1000)
    images = np.stack([draw(digit, random) for digit in labels])
    training, test = slice(800), slice(800, None)
    before = accuracy(MODEL, images[test], labels[test])
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "displays.npz"
        np.savez(data, input=images[training], labels=labels[training])
        options = "--loss cross_entropy --of linear --wrt 8.* --epochs 5 --learning-rate 0.01 --schedule cosine --warmup 100"
        line = ["train", str(MODEL), "--data", str(data), *options.split(), "-o", str(tuned)]
        print("dlc", shlex.join(line))
        command_line(line, standalone_mode=False)
    after = accuracy(tuned, images[test], labels[test])
    print(f"accuracy on 200 test images: {before:.1%} before, {after:.1%} after fine-tuning")


if __name__ == "__main__":
    main()
