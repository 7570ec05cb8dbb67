"""Compare single ONNX nodes with unusual but legal attributes with ONNX Runtime.

A node draws its attributes, which optional inputs are present, which inputs are initializers, and axes counted from either end.
Nodes that ONNX Runtime refuses are not compared. Needs the `onnxruntime` package.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from onnx import shape_inference

import dlc
from dlc.dialects.dl.base import Array
from dlc.errors import DlcError, UnsupportedError
from tests.fuzz.attribute_arithmetic import ARITHMETIC
from tests.fuzz.attribute_microsoft import MICROSOFT
from tests.fuzz.attribute_ml import MACHINE_LEARNING
from tests.fuzz.attribute_movement import MOVEMENT
from tests.fuzz.attribute_nodes import AttributeNode, Draw
from tests.fuzz.attribute_windows import WINDOWS
from tests.fuzz.trials import Trial, TrialOutcome, compared, trial_outcomes

TARGETS = ("reference", "cpu")
TIMEOUT_SECONDS = 120
# The severity of ONNX Runtime's log messages: errors that end the process only.
_FATAL = 4
_FLOATS = (np.float32, np.float32, np.float32, np.float64, np.float16)


def random_node(seed: int) -> AttributeNode:
    """Return the node of a seed."""
    draw = random.Random(seed)
    node = draw.choice(draw.choice((WINDOWS, MOVEMENT, ARITHMETIC, MICROSOFT, MACHINE_LEARNING)))(Draw(draw))
    return node.with_floats(draw.choice(_FLOATS))


def expected_results(node: AttributeNode) -> list[Array] | None:
    """Return ONNX Runtime's results of a node, or None if it refuses the node."""
    # ONNX Runtime infers the types of outputs that a model leaves open.
    model = shape_inference.infer_shapes(node.model())
    runtime: Any = import_module("onnxruntime")
    settings = runtime.SessionOptions()
    settings.log_severity_level = _FATAL
    settings.intra_op_num_threads = 1
    try:
        session = runtime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        return session.run(None, node.arguments)
    except Exception:
        return None


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and a description of a failure or None. Nodes that ONNX Runtime refuses are `invalid`."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        node = random_node(trial.seed)
        if (results := expected_results(node)) is None:
            return "invalid", None
        try:
            model = dlc.compile_model(node.model(results), target=trial.target, num_threads=1, cache=False)
            got = list(model(node.arguments).values())
        except UnsupportedError as error:
            return f"refused: {error.problems[0] if error.problems else error}", None
        except DlcError as error:
            return "rejected", f"{node}\n{type(error).__name__}: {error}"
        except Exception:
            return "failed", f"{node}\n{traceback.format_exc()}"
    return compared(list(_mismatches(node, [np.asarray(y) for y in got], results)))


def _mismatches(node: AttributeNode, got: Sequence[Array], expected: Sequence[Array]) -> Iterator[str]:
    for k, (x, y) in enumerate(zip(got, expected, strict=True)):
        if x.dtype != y.dtype or x.shape != y.shape:
            yield f"{node}\nresult {k}: {x.dtype}{list(x.shape)}, expected {y.dtype}{list(y.shape)}"
        elif (differs := _differs(x, y, node)).any():
            at = tuple(int(i) for i in np.argwhere(differs)[0])
            yield f"{node}\nresult {k}: {differs.sum()} of {x.size} differ; at {list(at)} {x[at]}, expected {y[at]}"


def _differs(x: Array, y: Array, node: AttributeNode) -> Array:
    if node.steps and x.dtype.kind in "iu":
        return np.abs(x.astype(np.int64) - y) > node.steps
    tolerance = node.tolerance
    if x.dtype.kind in "bOSU" or not tolerance:
        return (x != y) & ~((x != x) & (y != y))
    p, q = x.astype(np.float64), y.astype(np.float64)
    size = np.abs(q[np.isfinite(q)]).max(initial=1e-2)
    return ~((np.abs(p - q) <= tolerance * size) | (p == q) | (np.isnan(p) & np.isnan(q)))


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("onnx_attributes", s, (target or TARGETS[s % 8 == 7],)) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)
