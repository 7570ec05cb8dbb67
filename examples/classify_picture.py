"""Names what is on pictures with EfficientNet-Lite0, quantised to 8-bit integers by `dlc quantize`.

    python examples/classify_picture.py PICTURE... [--target opencl]

Each target that is given is timed beside `cpu`. The net is Google's (Apache-2.0); the labels are those of ImageNet.
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
SIZE = 224
# How often a picture is looked at for its time.
CALLS = 10


def pixels(path: Path) -> np.ndarray:
    """The square in the middle of a picture as the net takes it: float32[1, 3, 224, 224] about zero."""
    with Image.open(path) as picture:
        side = min(picture.size)
        left, top = ((size - side) // 2 for size in picture.size)
        square = picture.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC, (left, top, left + side, top + side))
    return ((np.asarray(square, np.float32) - 127) / 128).transpose(2, 0, 1)[None]


def likely(logits: np.ndarray, count: int = 3) -> str:
    """The likeliest labels, and how likely they are."""
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    return ", ".join(f"{LABELS[k]} {shares[k]:.0%}" for k in np.argsort(-shares)[:count])


def milliseconds(model: dlc.Model, x: np.ndarray) -> float:
    """The least time of some calls."""
    times: list[float] = []
    for _ in range(CALLS):
        began = perf_counter()
        np.asarray(model(x)["logits"])  # a device computes until somebody looks
        times.append(perf_counter() - began)
    return min(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="+", type=Path, metavar="PICTURE")
    parser.add_argument("--target", action="append", default=[], help="another target to time, such as opencl")
    arguments = parser.parse_args()
    models: dict[str, dlc.Model] = {}
    for target in dict.fromkeys(["cpu", *arguments.target]):
        began = perf_counter()
        models[target] = dlc.compile_model(MODELS / "efficientnet_lite0_int8.onnx", target=target)
        print(f"compiled for {target} in {perf_counter() - began:.1f} s", file=sys.stderr)
    for path in arguments.pictures:
        x = pixels(path)
        found = {target: likely(np.asarray(model(x)["logits"])[0]) for target, model in models.items()}
        times = ", ".join(f"{target} {milliseconds(model, x):.1f} ms" for target, model in models.items())
        print(f"{path}: {found['cpu']} ({times})")
        for target, names in found.items():
            if names != found["cpu"]:
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
