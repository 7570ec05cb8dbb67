"""The node tests of ONNX, and the list of those that dlc does not support.

    python -m tests.frontend.onnx.node_suite              run all on the reference evaluator and update the list
    python -m tests.frontend.onnx.node_suite --target cpu run all supported ones through the compiler of a target

Every input is passed at run time; the model is then specialized to the inputs that shapes depend on (axes, lengths).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dlc import onnx_backend
from dlc.errors import UnsupportedError

GAPS = Path(__file__).with_name("node_suite_gaps.txt")
# Cases whose data contradicts what users of ONNX Runtime get, each with the reason.
DIFFERENT = {
    "test_resize_downsample_scales_linear_align_corners": "the data divides by the size before it is rounded",
    "test_resize_downsample_scales_cubic_align_corners": "the data divides by the size before it is rounded",
    **dict.fromkeys(
        (
            "test_bernoulli",
            "test_bernoulli_double",
            "test_bernoulli_double_expanded",
            "test_bernoulli_expanded",
            "test_bernoulli_seed",
            "test_bernoulli_seed_expanded",
            "test_training_dropout",
            "test_training_dropout_default",
            "test_training_dropout_default_mask",
            "test_training_dropout_mask",
        ),
        "the data is from another random number generator",
    ),
}


@cache
def cases() -> dict[str, Any]:
    """Return the test cases by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in sorted(load_model_tests(kind="node"), key=lambda c: c.name)}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: why it is not supported, "" if it passes, and the inputs that it was specialized to."""

    gap: str = ""
    values: tuple[str, ...] = ()


def outcome(case: Any, target: str) -> Outcome:
    """Run a case through `dlc.onnx_backend`; raise AssertionError for wrong results."""
    if case.name in DIFFERENT:
        return Outcome(DIFFERENT[case.name])
    try:
        prepared = onnx_backend.prepare(case.model, target, num_threads=1, cache=False)
        for given, expected in case.data_sets:
            results = prepared.run([*map(_array, given)])
            for got, wanted in zip(results, expected, strict=True):
                _check(case.name, got, _array(wanted), exact=target == "reference")
    except UnsupportedError as error:
        # Without the names of nodes and tensors, so that equal reasons are grouped.
        return Outcome(re.sub(r"node '[^']*' |(?<=^input) '[^']*'|(?<=^output) '[^']*'", "", error.problems[0]))
    return Outcome(values=prepared.model.values)


def _array(value: Any) -> Any:
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list | None):
        return value
    return np.asarray(value) if np.isscalar(value) else value


def _check(name: str, got: Any, expected: Any, exact: bool) -> None:
    if expected is None:
        assert got is None, name
        return
    if isinstance(expected, list):
        for part, wanted in zip(got, expected, strict=True):
            _check(name, part, _array(wanted), exact)
        return
    got, expected = np.asarray(got), np.asarray(expected)
    if expected.dtype.kind in "OU":
        assert got.tolist() == expected.tolist(), name
        return
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
    if expected.dtype.kind in "iub":
        # Sums in another order may round to the other neighbour.
        tolerance = 1 if not exact and ("quant" in name or "qlinear" in name) else 0
        np.testing.assert_allclose(got.astype(np.int64), expected.astype(np.int64), 0, tolerance, err_msg=name)
    else:
        bound = {"float16": 4e-3, "bfloat16": 3e-2}.get(expected.dtype.name, 1e-4)
        np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), bound, bound, err_msg=name)


def read_gaps() -> tuple[str, dict[str, str]]:
    """Return the onnx version of the list, and the reason of each case in it."""
    reason, gaps = "", dict[str, str]()
    header, *lines = GAPS.read_text().splitlines()
    for line in lines:
        if line.startswith("    "):
            gaps[line.strip()] = reason
        else:
            reason = line
    return header.split()[2].rstrip(":"), gaps


def write_gaps(gaps: Mapping[str, str]) -> None:
    passed = len(cases()) - len(gaps)
    lines = [
        f"# onnx {onnx.__version__}: {passed} of {len(cases())} node tests pass; the others by reason, the most frequent first"
    ]
    by_reason: dict[str, list[str]] = {}
    for name, reason in gaps.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        lines += [reason, *(f"    {name}" for name in sorted(names))]
    GAPS.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="reference")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th case from the K-th on")
    options = parser.parse_args()
    os.environ["DLC_WORKERS"] = "1"
    k, n = map(int, options.part.split("/"))
    known = {} if options.target == "reference" else read_gaps()[1]
    gaps, failures, specialized = dict[str, str](), dict[str, str](), set[str]()
    names = [name for name in cases() if name not in known][k::n]
    for name in names:
        try:
            found = outcome(cases()[name], options.target)
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}"
        else:
            if found.gap:
                gaps[name] = found.gap
            elif found.values:
                specialized.add(name)
    for name, text in (gaps if known else failures).items() | failures.items():
        print(f"{name}: {' '.join(text.split())[:200]}")
    passed = len(names) - len(gaps) - len(failures)
    print(f"{options.target}: {passed} of {len(names)} pass, of {len(cases())} in all")
    print(f"    {passed - len(specialized)} without specialization to input values")
    print(f"    {len(specialized)} specialized to the values of inputs")
    print(f"    {len(gaps)} not supported, {len(failures)} wrong")
    if options.target == "reference" and n == 1 and not failures:
        write_gaps(gaps)
    return 1 if failures or (known and gaps) else 0


if __name__ == "__main__":
    sys.exit(main())
