"""The tests of the Array API standard, of `dlc.numpy` on plain arrays, from a clone of data-apis/array-api-tests.

Clone it with its submodule (`git clone --recurse-submodules`), which has the specification, and install its requirements
(`pip install hypothesis ndindex pytest-json-report`). A test draws random arrays; the seed is fixed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from dlc.errors import DlcError, UnsupportedError
from dlc.numpy.namespace import VERSION
from tests.suites.suite import NotComparableError, Suite, call_in_child

# Tests whose results differ on purpose; docs/numpy.md has the same reasons.
_INFINITE_QUOTIENT = "quotients of and by infinity are rounded down as in NumPy: inf // 1 is NaN, 1 // -inf is -1"
_EXCLUDED = (
    (r"test_creation_functions.py::test_(arange|empty|eye|full|linspace|ones|zeros)$", "the default dtype is float32"),
    (r"test_special_cases.py::.*(floor_divide|floordiv).*x1_i is [+-]infinity and isfinite\(x2_i\)", _INFINITE_QUOTIENT),
    (r"test_special_cases.py::.*(floor_divide|floordiv).*isfinite\(x1_i\).*x2_i is [+-]infinity\) -> -0", _INFINITE_QUOTIENT),
    (r"test_signatures.py::test_func_signature\[clip\]", "bounds have NumPy's names too"),
    (r"test_data_type_functions.py::test_finfo\[(float32|complex64)\]", "limits are NumPy scalars"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="a clone of data-apis/array-api-tests")
    parser.add_argument("--examples", type=int, default=20, help="examples of each test (default: 20)")


def suite(arguments: argparse.Namespace) -> Suite:
    folder = arguments.path.resolve()
    names = call_in_child(lambda: _collected(folder))
    conditions = f"array-api-tests {_revision(folder)}, standard {VERSION}, {arguments.examples} examples"
    excluded = {name: reason for name in names for pattern, reason in _EXCLUDED if re.search(pattern, name)}
    return Suite(conditions, names, lambda name: _run(folder, name, arguments.examples), excluded)


def _revision(folder: Path) -> str:
    """Return the commit of the clone."""
    command = ["git", "-C", str(folder), "log", "-1", "--format=%h"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "of unknown revision"


@dataclass
class _Session:
    """A pytest session with all tests of the clone, which runs single tests."""

    session: Any
    plugin: _Plugin
    items: Mapping[str, Any]

    def run(self, name: str) -> None:
        """Run a test. Raises the error that states its outcome, and NotComparableError for a skipped test."""
        item, plugin = self.items[name], self.plugin
        plugin.errors, plugin.skipped = [], ""
        with redirect_stdout(StringIO()):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        if plugin.errors:
            raise _outcome_of(plugin.errors[0])
        if plugin.skipped:
            raise NotComparableError(f"the suite skips it: {plugin.skipped}")


class _Plugin:
    """Collects the errors of a test, and the reason if it is skipped."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.skipped = ""

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.excinfo is not None and call.excinfo.typename == "Skipped":
            self.skipped = str(call.excinfo.value)
        elif call.excinfo is not None:
            self.errors.append(call.excinfo.value)


@cache
def _session(folder: Path, examples: int) -> _Session:
    """Start the session of this process: collecting the tests takes longer than most of them."""
    os.environ["ARRAY_API_TESTS_MODULE"] = "dlc.numpy"
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", str(folder / "pytest.ini"), f"--rootdir={folder}"]
    options += ["--disable-deadline", "--derandomize", f"--max-examples={examples}", str(folder / "array_api_tests")]
    plugin = _Plugin()
    with redirect_stdout(StringIO()):
        config = import_module("_pytest.config")._prepareconfig(options, [plugin])
        config._do_configure()
        session = import_module("pytest").Session.from_config(config)
        config.hook.pytest_sessionstart(session=session)
        items = session.perform_collect()
    return _Session(session, plugin, {item.nodeid.removeprefix("array_api_tests/"): item for item in items})


def _collected(folder: Path) -> list[str]:
    names = list(_session(folder, 1).items)
    if not names:
        raise FileNotFoundError(f"{folder}: no tests; expected a clone of data-apis/array-api-tests with its submodule")
    return names


def _run(folder: Path, name: str, examples: int) -> str:
    _session(folder, examples).run(name)
    return ""


def _outcome_of(error: BaseException) -> BaseException:
    """Return the error that states the outcome of a test that fails with an error."""
    errors = [error, *getattr(error, "exceptions", ())]
    unsupported = next((e for e in errors if isinstance(e, UnsupportedError)), None)
    if unsupported is not None or isinstance(error, DlcError | AssertionError):
        return unsupported or error
    return AssertionError(f"{type(error).__name__}: {error}")
