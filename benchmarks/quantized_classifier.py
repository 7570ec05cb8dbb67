"""Measure the accuracy of a quantized image classifier: agreement with the float model on random crops of images.

    python benchmarks/quantized_classifier.py FOLDER --calibration data
    python benchmarks/quantized_classifier.py FOLDER FLOAT.onnx INT8.onnx… [--precision bf16 f16]

The first command writes data/input.npy for `dlc quantize`; the second compares the five most likely classes. FOLDER has the
images of IMAGES, such as `skimage/data` of scikit-image's package. Crops are squares of random size and position; calibration
uses other crops of the same images. Needs Pillow (`pip install pillow`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

import dlc

INPUT_SIZE = 224
# Images of scikit-image's package with recognizable content, in color or gray.
IMAGES = (
    *("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "motorcycle_right.png", "camera.png"),
    *("coins.png", "brick.png", "grass.png", "gravel.png", "hubble_deep_field.jpg", "ihc.png", "retina.jpg", "moon.png"),
    *("page.png", "horse.png", "color.png", "cell.png", "text.png"),
)


def crops(folder: Path, count: int, seed: int) -> np.ndarray:
    """Return random crops as EfficientNet-Lite's input: float32[count, 3, 224, 224]."""
    rng, inputs = np.random.default_rng(seed), []
    images = [Image.open(folder / name).convert("RGB") for name in IMAGES]
    for k in range(count):
        image = images[k % len(images)]
        side = int(min(image.size) * rng.uniform(0.35, 1))
        left, top = (int(rng.integers(0, size - side + 1)) for size in image.size)
        crop = image.crop((left, top, left + side, top + side))
        if rng.random() < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = np.asarray(crop.resize((INPUT_SIZE, INPUT_SIZE), Image.Resampling.BICUBIC), np.float32)
        inputs.append(((pixels - 127) / 128).transpose(2, 0, 1))
    return np.stack(inputs)


def logits(model: Path, images: np.ndarray, precision: str = "f32") -> np.ndarray:
    compiled = dlc.compile_model(model, precision=precision)
    return np.concatenate([next(iter(compiled(image[None]).values())) for image in images])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--calibration", type=Path, metavar="FOLDER", help="write calibration data to this folder")
    parser.add_argument("--precision", nargs="*", default=[], help="also run the float model with these precisions")
    parser.add_argument("--count", type=int, help="number of crops (default: 120 for calibration, 200 for comparison)")
    arguments = parser.parse_args()
    if arguments.calibration is not None:
        arguments.calibration.mkdir(parents=True, exist_ok=True)
        np.save(arguments.calibration / "input.npy", crops(arguments.folder, arguments.count or 120, seed=1))
    if not arguments.models:
        return
    images = crops(arguments.folder, arguments.count or 200, seed=2)
    float_model, *quantized = arguments.models
    expected = logits(float_model, images)
    results = [
        (f"{float_model.name} --precision {p}", float_model, logits(float_model, images, p)) for p in arguments.precision
    ]
    results += [(model.name, model, logits(model, images)) for model in quantized]
    table = Table("model", "MB", "same top-1", "overlap of top-5", "error")
    for name, model, model_logits in results:
        top_5 = [np.argsort(-a, axis=1)[:, :5] for a in (expected, model_logits)]
        overlap = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(*top_5, strict=True)])
        same_top_1 = (top_5[0][:, 0] == top_5[1][:, 0]).mean()
        error = np.linalg.norm(model_logits - expected) / np.linalg.norm(expected)
        table.add_row(name, f"{model.stat().st_size / 1e6:.2f}", f"{same_top_1:.1%}", f"{overlap:.1%}", f"{error:.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
