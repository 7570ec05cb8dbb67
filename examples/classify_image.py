"""Classify images with EfficientNet-Lite0, quantized to int8 by `dlc quantize`.

    python examples/classify_image.py IMAGE... [--target opencl]

Prints the three most likely ImageNet classes of each image, and the latency on `cpu` and on each further `--target`. Needs
Pillow (`pip install pillow`). The network is Google's (Apache-2.0).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from PIL import Image, UnidentifiedImageError

import dlc

MODELS = Path(__file__).parent / "models"
LABELS = (MODELS / "imagenet_labels.txt").read_text().splitlines()
INPUT_SIZE = 224
TIMED_CALLS = 10


def load_pixels(path: Path) -> np.ndarray:
    """Load the centered square of an image as the network's input: float32[1, 3, 224, 224], about -1 to 1."""
    with Image.open(path) as image:
        side = min(image.size)
        left, top = ((size - side) // 2 for size in image.size)
        box = (left, top, left + side, top + side)
        square = image.convert("RGB").resize((INPUT_SIZE, INPUT_SIZE), Image.Resampling.BICUBIC, box)
    return ((np.asarray(square, np.float32) - 127) / 128).transpose(2, 0, 1)[None]


def top_classes(logits: np.ndarray, count: int = 3) -> str:
    """Format the most likely classes with their probabilities."""
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    return ", ".join(f"{LABELS[k]} {probabilities[k]:.0%}" for k in np.argsort(-probabilities)[:count])


def measure_milliseconds(model: dlc.Model, x: np.ndarray) -> float:
    """Return the time of the fastest of ten calls."""
    times: list[float] = []
    for _ in range(TIMED_CALLS):
        start = perf_counter()
        np.asarray(model(x)["logits"])  # calls on a device are asynchronous: wait for the result
        times.append(perf_counter() - start)
    return min(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
    parser.add_argument("--target", action="append", default=[], help="another target to run and time, such as opencl")
    arguments = parser.parse_args()
    models: dict[str, dlc.Model] = {}
    for target in dict.fromkeys(["cpu", *arguments.target]):
        start = perf_counter()
        models[target] = dlc.compile_model(MODELS / "efficientnet_lite0_int8.onnx", target=target)
        print(f"compiled for {target} in {perf_counter() - start:.1f} s", file=sys.stderr)
    for path in arguments.images:
        x = load_pixels(path)
        classes = {target: top_classes(np.asarray(model(x)["logits"])[0]) for target, model in models.items()}
        times = ", ".join(f"{target} {measure_milliseconds(model, x):.1f} ms" for target, model in models.items())
        print(f"{path}: {classes['cpu']} ({times})")
        for target, names in classes.items():
            if names != classes["cpu"]:
                print(f"{path}: {names} on {target}")


if __name__ == "__main__":
    try:
        main()
    except UnidentifiedImageError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
    except dlc.DlcError as error:
        sys.exit(str(error))
