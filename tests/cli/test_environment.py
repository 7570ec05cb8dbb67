"""The command line in unusual environments: other encodings, arbitrary file names, other interpreter settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

MNIST = Path(__file__).parents[1] / "models" / "small" / "mnist_cnn.onnx"
# Runs commands one after the other in a new process of this interpreter.
COMMANDS = "import sys; from dlc.cli import main\nfor words in sys.argv[1:]: main(words.split(), standalone_mode=False)"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def ran(folder: Path, environment: Mapping[str, str], *commands: str, python: tuple[str, ...] = ()) -> bytes:
    """Run commands in a process; check that they succeed without other output."""
    program = [sys.executable, *python, "-c", COMMANDS, *commands]
    done = subprocess.run(program, cwd=folder, env={**os.environ, "PYTHONOPTIMIZE": "", **environment}, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode(errors="replace")
    return done.stdout


@pytest.mark.parametrize("encoding", [ASCII, {"PYTHONIOENCODING": "utf-8:strict"}], ids=["ascii", "utf8"])
def test_any_file_names_and_any_strings(tmp_path: Path, encoding: Mapping[str, str]) -> None:
    model, library, page, stages = (os.fsdecode(b"\xff\xc3\xa9" + end) for end in (b".onnx", b".so", b".html", b"-ir"))
    shutil.copy(MNIST, tmp_path / model)
    printed = ran(
        tmp_path,
        encoding,
        f"check {model}",
        f"compile {model} -o {library}",
        f"compile {model} --dump-ir {stages}",
        f"explore {model} --no-run -o {page}",
        "passes",
    )
    assert b"\\u03a3" in printed or "\u03a3".encode() in printed
    assert os.fsencode(library) in (tmp_path / library).read_bytes()
    assert "?" in (tmp_path / page).read_text("utf-8")
    assert (tmp_path / stages / "index.md").read_text("utf-8")


def test_compilation_is_deterministic_across_processes(tmp_path: Path) -> None:
    surroundings = [
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "1", "DLC_WORKERS": "2"},
        {"PYTHONHASHSEED": "2", "PYTHONOPTIMIZE": "2", "DLC_VERIFY": "0"},
    ]
    for k, environment in enumerate(surroundings):
        ran(tmp_path, environment, f"compile {MNIST} --no-cache -o {k}.dlc")
    first, *others = ((tmp_path / f"{k}.dlc").read_bytes() for k in range(len(surroundings)))
    assert all(other == first for other in others)


def test_no_warnings_in_python_development_mode(tmp_path: Path) -> None:
    ran(tmp_path, {}, f"compile {MNIST} --no-cache -o m.dlc", "run m.dlc", python=("-X", "dev", "-W", "error"))
