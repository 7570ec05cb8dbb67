"""The README's example, as a person runs it: magika names the types of files."""

from __future__ import annotations

import gzip
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_identify_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page"
    page.write_text("<!DOCTYPE html>\n<html><head><title>dlc</title></head><body><p>Words.</p></body></html>\n" * 3)
    archive, empty, short = tmp_path / "archive", tmp_path / "empty", tmp_path / "short"
    archive.write_bytes(gzip.compress(bytes(range(256)) * 20, mtime=0))
    empty.touch()
    short.write_text("dlc")
    expected = {
        ROOT / "LICENSE": "txt",
        ROOT / "dlc" / "model.py": "python",
        ROOT / "pyproject.toml": "toml",
        ROOT / "README.md": "markdown",
        ROOT / "tests" / "models" / "small" / "mnist_cnn.onnx": "onnx",
        page: "html",
        archive: "gzip",
        empty: "empty",
        short: "txt",
    }
    example = ROOT / "examples" / "identify_file.py"
    monkeypatch.setattr(sys, "argv", [str(example), *map(str, expected)])
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" (")[0] for line in printed] == [f"{path}: {label}" for path, label in expected.items()]
