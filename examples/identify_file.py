"""Identify the types of files with magika, a pretrained model that is compiled to native code.

    python examples/identify_file.py FILE...

Prints the type of each file, the model's confidence and the latency. The model, its thresholds and the rules for small files
are Google's (Apache-2.0, https://github.com/google/magika).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

import dlc

MODELS = Path(__file__).parent / "models"
CONFIG = json.loads((MODELS / "magika_v3_3.config.json").read_text())
LABELS = CONFIG["target_labels_space"]


def load_tokens(path: Path) -> np.ndarray:
    """Return the model's input, int32[2048]: the first and last bytes of a file without surrounding white space, padded."""
    block, size, padding = CONFIG["block_size"], CONFIG["beg_size"], CONFIG["padding_token"]
    with path.open("rb") as file:
        first = file.read(block).lstrip()[:size]
        file.seek(max(0, path.stat().st_size - block))
        last = file.read(block).rstrip()[-size:]
    row = np.full(2 * size, padding, np.int32)
    row[: len(first)] = list(first)
    row[2 * size - len(last) :] = list(last)
    return row


def generic_label(path: Path) -> str:
    """Return the label of a file without a confident prediction: "txt" if it is UTF-8 text, else "unknown"."""
    try:
        path.read_bytes()[: CONFIG["block_size"]].decode()
    except UnicodeDecodeError as error:
        # The end of the block may split a multi-byte character.
        return "txt" if error.reason == "unexpected end of data" else "unknown"
    return "txt"


def identify(model: dlc.Model, path: Path) -> tuple[str, float]:
    """Return the label of a file's type and the confidence of the model."""
    row = load_tokens(path)
    if path.stat().st_size == 0:
        return "empty", 1.0
    if row[CONFIG["min_file_size_for_dl"] - 1] == CONFIG["padding_token"]:
        return generic_label(path), 1.0
    scores = model(row[None])["target_label"][0]
    label, score = LABELS[int(scores.argmax())], float(scores.max())
    if score < CONFIG["thresholds"].get(label, CONFIG["medium_confidence_threshold"]):
        return generic_label(path), score
    return CONFIG["overwrite_map"].get(label, label), score


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} FILE...")
    start = perf_counter()
    model = dlc.compile_model(MODELS / "magika_v3_3.onnx", input_shapes={"bytes": (1, 2048)})
    print(f"magika compiled to native code in {perf_counter() - start:.1f} s", file=sys.stderr)
    for name in sys.argv[1:]:
        start = perf_counter()
        label, score = identify(model, Path(name))
        print(f"{name}: {label} ({score:.0%}, {(perf_counter() - start) * 1e3:.1f} ms)")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
