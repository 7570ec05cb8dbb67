"""How well magika, which names the types of texts by their bytes, does it when it is quantised.

    python benchmarks/file_types.py FOLDER --calibration data            writes data/bytes.npy for `dlc quantize`
    python benchmarks/file_types.py FOLDER FLOAT.onnx [INT8.onnx…] [--precision bf16] [--weights int8]

Texts are files in FOLDER, and the folders in it, whose ending says what they are, at most `--each` of an ending, drawn at
random; those of calibration are others. Right is what the ending says.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import dlc

sys.path.insert(0, str(Path(__file__).parent.parent))

from examples.identify_file import LABELS, tokens

ENDINGS = {
    "py": "python", "c": "c", "hpp": "cpp", "js": "javascript", "html": "html", "css": "css", "json": "json", "go": "go",
    "md": "markdown", "rs": "rust", "sh": "shell", "xml": "xml", "svg": "svg", "csv": "csv", "rst": "rst", "sql": "sql",
    "yml": "yaml", "toml": "toml", "pl": "perl", "ini": "ini", "java": "java",
}  # fmt: skip
# What is shorter says little.
LEAST_BYTES = 512


def texts(folder: Path, each: int, is_calibration: bool) -> tuple[np.ndarray, list[str]]:
    """Files as tokens, and what they are; those of calibration are every other one of an ending."""
    found: dict[str, list[Path]] = {ending: [] for ending in ENDINGS}
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path, ending = Path(root, name), name.rpartition(".")[2]
            if ending in found and path.is_file() and not path.is_symlink() and path.stat().st_size >= LEAST_BYTES:
                found[ending].append(path)
    chosen: list[tuple[Path, str]] = []
    for ending, paths in found.items():
        np.random.default_rng(0).shuffle(paths)
        chosen += [(path, ENDINGS[ending]) for path in paths[is_calibration::2][:each]]
    return np.stack([tokens(path) for path, _ in chosen]), [label for _, label in chosen]


def scores(model: Path, rows: np.ndarray, **options: Any) -> np.ndarray:
    compiled = dlc.compile_model(model, input_shapes={"bytes": (1, rows.shape[1])}, **options)
    return np.concatenate([compiled(row[None])["target_label"] for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--precision", nargs="*", default=[], help="also the first model with these precisions")
    parser.add_argument("--weights", nargs="*", default=[], help="also the first model with such weights")
    parser.add_argument("--each", type=int, help="texts of an ending: by default 8 to calibrate with, 40 to compare")
    arguments = parser.parse_args()
    if arguments.calibration is not None:
        arguments.calibration.mkdir(parents=True, exist_ok=True)
        np.save(arguments.calibration / "bytes.npy", texts(arguments.folder, arguments.each or 8, True)[0])
    if not arguments.models:
        return
    rows, labels = texts(arguments.folder, arguments.each or 40, False)
    expected = scores(arguments.models[0], rows)
    made = {arguments.models[0].name: expected}
    for option in ("precision", "weights"):
        for value in getattr(arguments, option):
            made[f"--{option} {value}"] = scores(arguments.models[0], rows, **{option: value})
    made |= {model.name: scores(model, rows) for model in arguments.models[1:]}
    table = Table(f"{len(rows)} texts", "right", "as in floats", "error")
    for name, got in made.items():
        first = got.argmax(axis=1)
        right = np.mean([LABELS[k] == label for k, label in zip(first, labels, strict=True)])
        error = np.linalg.norm(got - expected) / np.linalg.norm(expected)
        table.add_row(name, f"{right:.1%}", f"{(first == expected.argmax(axis=1)).mean():.1%}", f"{error:.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
