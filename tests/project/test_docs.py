"""The documentation: its Python blocks and commands run, and its links resolve."""

from __future__ import annotations

import re
import sys
import webbrowser
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

import dlc
from dlc.backends.cpu import limits
from dlc.backends.limits import Limits
from dlc.runtime.opencl.devices import all_devices
from tests.fuzz.__main__ import main as fuzz
from tests.project import documented
from tests.project.documented import (
    EXPECTED_ERRORS,
    HANDWRITTEN,
    NOT_RUN,
    QUOTED,
    ROOT,
    Snippet,
    arguments_of,
    prepare,
    snippets,
)

REQUIRED_PACKAGES = {"automatic_sharding.md": "scipy", "jax.md": "jax", "pytorch.md": "torch"}


def python_of(page: Path) -> list[str]:
    return [snippet.text for snippet in snippets(page) if snippet.language == "python"]


def commands_of(page: Path) -> list[str]:
    return [p.text for p in snippets(page) if p.language == "command" and p.text not in NOT_RUN and p.missing is None]


@pytest.mark.parametrize(
    "page", [p for p in HANDWRITTEN if python_of(p) and p.name not in (*QUOTED, *NOT_RUN)], ids=lambda p: p.name
)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in REQUIRED_PACKAGES:
        pytest.importorskip(REQUIRED_PACKAGES[page.name])
    if page.name == "opencl.md" and not all_devices():
        pytest.skip("no OpenCL device")
    # Input files are in the repository, output files are not.
    monkeypatch.chdir(tmp_path)
    prepare(page, tmp_path)
    # Later blocks use the names of earlier ones.
    names = {"__name__": "__main__"}
    for number, block in enumerate(python_of(page)):
        # From a file, because tracing reads the source of functions.
        file = tmp_path / f"block{number}.py"
        file.write_text(block)
        exec(compile(block, str(file), "exec"), names)


@pytest.mark.parametrize("page", [p for p in HANDWRITTEN if p.name in QUOTED], ids=lambda p: p.name)
def test_python_blocks_that_quote(page: Path) -> None:
    """Each line occurs in a file that tests run, except elisions ("…") and trailing remarks."""
    lines = {line.strip() for file in QUOTED[page.name] for line in (ROOT / file).read_text().splitlines()}
    quoted = [re.split(r" {2,}#", line)[0].strip() for block in python_of(page) for line in block.splitlines()]
    assert quoted and [line for line in quoted if line and "…" not in line and line not in lines] == []


@pytest.mark.parametrize("page", [p for p in HANDWRITTEN if commands_of(p)], ids=lambda p: p.name)
def test_commands_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the commands of a page in order, on small files with the names that they use."""
    monkeypatch.chdir(tmp_path)
    # Use the cache, as users do, and do not measure the machine, which takes too long for a test.
    monkeypatch.delenv("DLC_VERIFY")
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(limits, "measured_limits", lambda target, threads=1: Limits(1e11, 5e10, 1e10))
    # A server would run until Ctrl-C.
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", lambda self: None)
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    monkeypatch.setenv("DLC_WORKERS", "2")
    prepare(page, tmp_path)
    for command in commands_of(page):
        program, *arguments = arguments_of(command)
        if arguments[:2] == ["-m", "tests.fuzz"]:
            monkeypatch.setattr(sys, "argv", arguments[1:])
            assert fuzz() == 0, command
            continue
        if "=" in program:
            monkeypatch.setenv(*program.split("=", 1))
            program, *arguments = arguments
        result = documented.dlc(*(["compile", *arguments] if program == "compile-model" else arguments))
        expected_error = EXPECTED_ERRORS.get(command)
        assert result.exit_code == (expected_error is not None), f"{command}: {result.stderr}"
        assert expected_error is None or expected_error in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", NOT_RUN)
def test_exceptions_have_a_reason(command: str) -> None:
    """Each exception has a reason and still occurs on a page."""
    assert any(command in (page.name, *(snippet.text for snippet in snippets(page))) for page in HANDWRITTEN)
    pytest.skip(NOT_RUN[command])


@pytest.mark.parametrize("snippet", [p for page in HANDWRITTEN for p in snippets(page) if p.missing], ids=lambda p: p.text)
def test_requirements_of_skipped_commands(snippet: Snippet) -> None:
    pytest.skip(snippet.missing or "")


@pytest.mark.parametrize("page", HANDWRITTEN, ids=lambda p: p.name)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", HANDWRITTEN, ids=lambda p: p.name)
def test_named_files_exist(page: Path) -> None:
    """Files are named by a unique part of their path, such as `fusion/groups.py`."""
    for name in re.findall(r"`(\w[\w./]*/\w+\.(?:py|ll|h))`", page.read_text()):
        assert any(ROOT.glob(name)) or any((ROOT / "dlc").rglob(name)), name


def test_the_reference_has_every_public_name() -> None:
    documented = set(re.findall(r"^::: dlc\.(?:.*\.)?(\w+)$", (ROOT / "docs" / "reference.md").read_text(), re.M))
    assert {name for name, module in dlc._PUBLIC.items() if module != "dlc.errors"} <= documented  # that module is whole


def test_licenses_are_included() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert any((ROOT / "examples" / "models" / "licenses").iterdir())
