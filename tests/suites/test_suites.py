"""The frame of the suites: outcomes, sampling, records and the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.errors import ShapeError, UnsupportedError
from tests.suites import record
from tests.suites.__main__ import SUITES, journaled_cases, main
from tests.suites.comparison import check_equal
from tests.suites.page import PAGE, conformance_page
from tests.suites.record import differences, read_record, record_of, write_record
from tests.suites.suite import CaseOutcome, NotComparableError, Suite, run_case, run_cases, select_cases

ERRORS = {
    "refused": UnsupportedError("m.mlir:\n  line", ["stablehlo.fft (line 3, 7)"]),
    "wrong": AssertionError("result 0: 1 of 4 elements differ"),
    "crashed": ShapeError("input 'x'"),
    "excluded": NotComparableError("returns random numbers"),
}


def run(name: str) -> str:
    if name in ERRORS:
        raise ERRORS[name]
    return "a remark"


SUITE = Suite("package 1.0, target cpu", ["right", *ERRORS, "skipped"], run, {"skipped": "the data differs"})
OUTCOMES = [
    CaseOutcome("right", "right", "a remark"),
    CaseOutcome("refused", "refused", "stablehlo.fft"),
    CaseOutcome("wrong", "wrong", "result 0: 1 of 4 elements differ"),
    CaseOutcome("crashed", "crashed", "ShapeError: input 'x'"),
    CaseOutcome("excluded", "excluded", "returns random numbers"),
    CaseOutcome("skipped", "excluded", "the data differs"),
]


def test_errors_are_outcomes() -> None:
    assert [run_case(SUITE, name) for name in SUITE.names] == OUTCOMES
    assert list(run_cases(SUITE, SUITE.names, 1)) == OUTCOMES


def test_samples_are_at_equal_distances() -> None:
    names = [f"test_{k}" for k in range(10)]
    assert select_cases(names, limit=3) == ["test_0", "test_3", "test_6"]
    assert select_cases(names, "_[89]$") == ["test_8", "test_9"]


def test_records_are_read_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    written = record_of(SUITE.conditions, 100, OUTCOMES)
    write_record("suite", written)
    assert read_record("suite") == written
    assert not differences(written, OUTCOMES)
    assert differences(written, [CaseOutcome("wrong", "right")]) == [
        "wrong: right ; recorded: wrong result 0: 1 of 4 elements differ"
    ]


def test_an_interrupted_run_continues(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    assert journaled_cases(SUITE, ["right", "wrong"], journal, 1) == OUTCOMES[:1] + OUTCOMES[2:3]
    observed = Suite(SUITE.conditions, SUITE.names, lambda name: (tmp_path / name).touch() or run(name), SUITE.excluded)
    assert sorted(journaled_cases(observed, list(SUITE.names), journal, 1), key=OUTCOMES.index) == OUTCOMES
    assert not (tmp_path / "right").exists() and (tmp_path / "refused").exists()


def test_the_page_has_the_recorded_results() -> None:
    assert PAGE.read_text() == conformance_page(), "run python docs/generate.py"
    assert set(record.recorded_suites()) <= SUITES.keys()


def test_a_suite_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["onnx-node", "--target", "reference", "--filter", "^test_abs$|^test_bernoulli$", "--jobs", "1", "--check"]) == 0
    )
    assert "1 right" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_floats_are_compared_within_a_tolerance(dtype: type) -> None:
    expected = np.array([1.0, 0.0, -3.0], dtype)
    check_equal(expected * dtype(1 + 1e-6), expected, "x")
    for wrong in (expected * dtype(1.001), expected[:2], expected.astype(np.complex128), expected * dtype(np.nan)):
        with pytest.raises(AssertionError, match="x: "):
            check_equal(wrong, expected, "x")
    special = np.array([np.nan, np.inf, -np.inf], np.float32)
    check_equal(special, special, "x")
    with pytest.raises(AssertionError, match="x: 2 of 3 elements differ"):
        check_equal(-special, special, "x")
