"""Measure the accuracy of quantized magika models, which identify the types of text files.

    python benchmarks/quantized_magika.py FOLDER --calibration data
    python benchmarks/quantized_magika.py FOLDER FLOAT.onnx [INT8.onnx…] [--precision bf16] [--weights int8]

The first command writes data/bytes.npy for `dlc quantize`; the second compares models. The samples are files in FOLDER and its
subfolders, at most `--each` per file extension, drawn at random; calibration uses other files. The expected label of a file is
given by its extension.
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

from examples.identify_file import LABELS, load_tokens

LABEL_OF_EXTENSION = {
    "py": "python", "c": "c", "hpp": "cpp", "js": "javascript", "html": "html", "css": "css", "json": "json", "go": "go",
    "md": "markdown", "rs": "rust", "sh": "shell", "xml": "xml", "svg": "svg", "csv": "csv", "rst": "rst", "sql": "sql",
    "yml": "yaml", "toml": "toml", "pl": "perl", "ini": "ini", "java": "java",
}  # fmt: skip
# Shorter files are too ambiguous.
MIN_FILE_BYTES = 512


def load_files(folder: Path, each: int, is_calibration: bool) -> tuple[np.ndarray, list[str]]:
    """Return files as tokens, and their expected labels; calibration uses every other file of an extension."""
    files_of: dict[str, list[Path]] = {extension: [] for extension in LABEL_OF_EXTENSION}
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path, extension = Path(root, name), name.rpartition(".")[2]
            if extension in files_of and path.is_file() and not path.is_symlink() and path.stat().st_size >= MIN_FILE_BYTES:
                files_of[extension].append(path)
    selected: list[tuple[Path, str]] = []
    for extension, paths in files_of.items():
        np.random.default_rng(0).shuffle(paths)
        selected += [(path, LABEL_OF_EXTENSION[extension]) for path in paths[is_calibration::2][:each]]
    return np.stack([load_tokens(path) for path, _ in selected]), [label for _, label in selected]


def scores(model: Path, rows: np.ndarray, **options: Any) -> np.ndarray:
    compiled = dlc.compile_model(model, input_shapes={"bytes": (1, rows.shape[1])}, **options)
    return np.concatenate([compiled(row[None])["target_label"] for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--calibration", type=Path, metavar="FOLDER", help="write calibration data to this folder")
    parser.add_argument("--precision", nargs="*", default=[], help="also run the first model with these precisions")
    parser.add_argument("--weights", nargs="*", default=[], help="also run the first model with quantized weights: int8, int4")
    parser.add_argument("--each", type=int, help="files per extension (default: 8 for calibration, 40 for comparison)")
    arguments = parser.parse_args()
    if arguments.calibration is not None:
        arguments.calibration.mkdir(parents=True, exist_ok=True)
        np.save(arguments.calibration / "bytes.npy", load_files(arguments.folder, arguments.each or 8, True)[0])
    if not arguments.models:
        return
    rows, labels = load_files(arguments.folder, arguments.each or 40, False)
    expected = scores(arguments.models[0], rows)
    results = {arguments.models[0].name: expected}
    for option in ("precision", "weights"):
        for value in getattr(arguments, option):
            results[f"--{option} {value}"] = scores(arguments.models[0], rows, **{option: value})
    results |= {model.name: scores(model, rows) for model in arguments.models[1:]}
    table = Table(f"{len(rows)} files", "correct", "same as float model", "error")
    for name, model_scores in results.items():
        predictions = model_scores.argmax(axis=1)
        accuracy = np.mean([LABELS[k] == label for k, label in zip(predictions, labels, strict=True)])
        error = np.linalg.norm(model_scores - expected) / np.linalg.norm(expected)
        table.add_row(name, f"{accuracy:.1%}", f"{(predictions == expected.argmax(axis=1)).mean():.1%}", f"{error:.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
