"""Random calls of NumPy's functions, drawn from their signatures: `dlc.numpy` must give NumPy's results, or refuse them.

A case is a function, with all of its calls (`numpy_calls.py`). Differences that docs/numpy.md documents are excluded.
"""

from __future__ import annotations

import argparse
import re

import numpy as np

from dlc.errors import UnsupportedError
from tests.suites.numpy_calls import count_calls, documented_difference, numpy_functions
from tests.suites.suite import NotComparableError, Suite


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=20, help="calls of each function (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the calls (default: 0)")
    parser.add_argument("--traced", action="store_true", help="trace the calls, and run them on the reference target")


def suite(arguments: argparse.Namespace) -> Suite:
    way = "traced, target reference" if arguments.traced else "plain arrays"
    conditions = f"numpy {np.__version__}, {arguments.calls} calls of each function, {way}"

    def run(name: str) -> str:
        return _run(name, arguments.seed, arguments.calls, arguments.traced)

    return Suite(conditions, list(numpy_functions()), run)


def _run(name: str, seed: int, calls: int, traced: bool) -> str:
    """Raise the outcome of a function: a difference or a crash of any call, or a refusal of the most of them."""
    counted = count_calls(seed, calls, traced=traced, names=(name,))
    reason = documented_difference(name)
    if counted.problems and reason:
        raise NotComparableError(reason)
    assert not counted.problems, counted.problems[0][1]
    num_refused = counted.counts["refused"]
    if num_refused > counted.counts["equal"]:
        raise UnsupportedError(f"{name}", [re.sub(r"^[\w.]+: \d+: ", "", counted.refusals.most_common(1)[0][0])])
    return "some calls refused" if num_refused else "all calls equal"
