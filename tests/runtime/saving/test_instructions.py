"""Invalid files: numbers out of range, and Python calls with invalid arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlc.errors import ModelError
from dlc.runtime.program.bounds import BoundsChecks
from dlc.runtime.program.host_program import HostProgram, PythonCall
from dlc.runtime.program.python_calls import call_python_op
from dlc.runtime.saving.header.instructions import from_json, to_json
from dlc.runtime.saving.header.tensor_info import info_from_json
from dlc.runtime.saving.header.values import size_from_json

SPLIT: dict[str, Any] = {
    "python_call": "string_split",
    "settings": {"max_splits": None},
    "where": "node 'y'",
    "arguments": [[[2, 0], [2], "int64"], [[5, 0], [], "int64"]],
    "results": [[[7, 0], [2, "split_0"], "int64"], [[6, 0], [2], "int64"]],
    "data_dependent_sizes": ["split_0"],
}
REFUSED: dict[str, dict[str, Any]] = {
    "a function of Python": {"python_call": "eval"},
    "a function beside the ops": {"python_call": "kept_of"},
    "an op of fewer arguments": {"python_call": "nonzero", "settings": {}},
    "too few arguments": {"arguments": SPLIT["arguments"][:1]},
    "an argument among the settings": {"settings": {"max_splits": None, "x": "a"}},
    "a setting that is none": {"settings": {"axis": 1}},
    "a setting of another kind": {"settings": {"max_splits": [1]}},
    "objects": {"results": [[[7, 0], [2], "object"], SPLIT["results"][1]]},
}


def test_round_trip() -> None:
    assert json.loads(json.dumps(to_json(from_json([SPLIT], {})))) == [SPLIT]


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_invalid_python_calls(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_json([{**SPLIT, **change}], {})


COUNTED = {"python_call": "nonzero", "settings": {}, "where": "node 'y'", "data_dependent_sizes": ["nonzero_0"]}
TAKEN, MADE = [[2, 0], [3], "float32"], [[7, 0], [1, "nonzero_0"], "int64"]
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "more results": (
        {"arguments": [TAKEN], "results": [MADE, MADE]},
        "got results with 2 axes; expected results with 2, 2 axes",
    ),
    "a result of other axes": (
        {"arguments": [TAKEN], "results": [[[7, 0], ["nonzero_0"], "int64"]]},
        "got results with 2 axes; expected results with 1 axes",
    ),
    "an argument of other axes": (
        {"python_call": "unique", "settings": {"axis": 4, "keep_order": False, "nan_differs": False}, "arguments": [TAKEN]},
        "does not accept these arguments",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_result_types(change: dict[str, Any], message: str) -> None:
    (compute,) = from_json([{**COUNTED, "results": [MADE], **change}], {})
    assert isinstance(compute, PythonCall)
    with pytest.raises(ModelError, match=f"at node 'y': .*{message}"):
        call_python_op(compute, lambda ref, size: bytes(size), {})


TOO_LARGE = 1 << 63


@pytest.mark.parametrize("written", [TOO_LARGE, str(TOO_LARGE), f"{TOO_LARGE} * n", f"n - {TOO_LARGE}", -1, "-1", 2.0, None])
def test_invalid_sizes(written: Any) -> None:
    with pytest.raises(ValueError, match="is no"):
        size_from_json(written)


@pytest.mark.parametrize("shape", [[1 << 61, 1], [1 << 31, 1 << 30], ["n", 1 << 62]])
def test_a_tensor_larger_than_memory_can_be(shape: list[Any]) -> None:
    with pytest.raises(ValueError, match="is not a count"):
        info_from_json(["x", shape, "float32"])


def test_unused_loop_slots() -> None:
    with pytest.raises(ModelError, match="3 slots, of which loops set 0"):
        BoundsChecks.of(HostProgram((), (), (), (), loop_slots=1))
