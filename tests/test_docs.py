"""What the documentation shows works: its Python blocks run, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlc.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = [p for p in PAGES if p.name not in ("ops.md", "passes.md", "tour.template.md")]


@pytest.mark.parametrize(
    "name",
    ["README.md", *(f"docs/{page}.md" for page in ("calculus", "control_flow", "explorer", "models", "quantization"))],
)
def test_python_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    # The blocks of a page go on from one another.
    names = {"__name__": "__main__"}
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.S | re.M)):
        # From a file, since traced functions are read from their source.
        file = tmp_path / f"block{number}.py"
        file.write_text(block)
        exec(compile(block, str(file), "exec"), names)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: p.name)
def test_commands_exist(page: Path) -> None:
    for block in re.findall(r"^```\n(.*?)^```", page.read_text(), re.S | re.M):
        for command in re.findall(r"^dlc (\w+)", block, re.M):
            assert command in COMMANDS


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_licences_are_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert any((ROOT / "examples" / "models" / "licenses").iterdir())
