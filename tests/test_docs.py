"""What the documentation shows works: its Python blocks run, its commands are taken as they are, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

import dlc
from dlc.cli import COMMANDS, main
from dlc.runtime.opencl.devices import all_devices

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = [p for p in PAGES if p.name not in ("ops.md", "passes.md") and not p.name.endswith(".template.md")]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)


# Whose blocks are not programs, and what else runs them; and what others need.
EXCERPTS = {
    "tour.md": "docs/tour.py compiles it",
    "tflite.md": "tests/frontend/tflite compiles the files it has",
    "onnx.md": "tests/test_onnx_backend.py runs its tests",
    "extending.md": "parts of dlc and of examples/c_target.py, which tests run",
}
NEEDS = {"jax.md": "jax", "pytorch.md": "torch"}


@pytest.mark.parametrize("page", [p for p in WRITTEN if blocks(p) and p.name not in EXCERPTS], ids=lambda p: p.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    if page.name == "opencl.md" and not all_devices():
        pytest.skip("no OpenCL device")
    # What they read is in the repository; what they write is not.
    monkeypatch.chdir(tmp_path)
    for name in ("tests", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    # The blocks of a page go on from one another.
    names = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page)):
        # From a file, since traced functions are read from their source.
        file = tmp_path / f"block{number}.py"
        file.write_text(block)
        exec(compile(block, str(file), "exec"), names)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: p.name)
def test_commands_exist(page: Path) -> None:
    for block in re.findall(r"^```\n(.*?)^```", page.read_text(), re.S | re.M):
        for command in re.findall(r"^dlc (\w+)", block, re.M):
            assert command in COMMANDS


@pytest.mark.parametrize("page", [p for p in WRITTEN if p.name != "README.md"], ids=lambda p: p.name)
def test_commands_are_taken_as_they_are(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments and options, and their values; the files that they name are not there."""
    for kind in (click.Path, click.File):
        monkeypatch.setattr(kind, "convert", lambda self, value, parameter, context: Path(value))
    for block in re.findall(r"^ *```\n(.*?)^ *```", page.read_text(), re.S | re.M):
        for line in re.findall(r"^ *((?:dlc|compile-model) .*)", block, re.M):
            program, *arguments = shlex.split(re.split(r" {3,}|\|", line)[0], comments=True)
            context = click.Context(main)
            if program == "compile-model":
                arguments.insert(0, "compile")
            command = main.get_command(context, arguments[0])
            assert command is not None, line
            try:
                command.make_context(arguments[0], arguments[1:], context)
            except click.UsageError as error:
                pytest.fail(f"{line}: {error.format_message()}")


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_reference_has_every_public_name() -> None:
    documented = set(re.findall(r"^::: dlc\.(?:.*\.)?(\w+)$", (ROOT / "docs" / "reference.md").read_text(), re.M))
    assert {name for name, module in dlc._PUBLIC.items() if module != "dlc.errors"} <= documented  # that module is whole


def test_the_licences_are_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert any((ROOT / "examples" / "models" / "licenses").iterdir())
