"""Run a saved model in a process in which the compiler cannot be imported."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SCRIPT = """
import pickle, sys
sys.modules |= dict.fromkeys(("xdsl", "onnx", "llvmlite"))  # importing what is None here is an error
import dlc
with open(sys.argv[2], "rb") as file:
    calls = pickle.load(file)
model = dlc.load(sys.argv[1])
results = [dict(model(*call)) for call in calls]
with open(sys.argv[3], "wb") as file:
    pickle.dump(([*map(str, model.inputs)], [*model.values], results), file)
"""


def answers_alone(path: Path, calls: Sequence[Sequence[Any]]) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Return the descriptions of a saved model's inputs and values, and its results by name for each call."""
    asked, answers = path.with_suffix(".in.pickle"), path.with_suffix(".out.pickle")
    asked.write_bytes(pickle.dumps(calls))
    subprocess.run([sys.executable, "-c", _SCRIPT, path, asked, answers], check=True)
    return pickle.loads(answers.read_bytes())
