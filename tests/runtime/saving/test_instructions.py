"""What a file says that is no model: numbers out of range, and ops that Python computes of what they do not take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlc.errors import ModelError
from dlc.runtime.program.computing import computed
from dlc.runtime.program.host_program import Compute
from dlc.runtime.saving.header.instructions import from_json, to_json
from dlc.runtime.saving.header.open_program import open_from_json
from dlc.runtime.saving.header.tensor_info import info_from_json
from dlc.runtime.saving.header.values import read_size

SPLIT: dict[str, Any] = {
    "compute": "text_split",
    "settings": {"most": None},
    "where": "node 'y'",
    "takes": [[[2, 0], [2], "int64"], [[5, 0], [], "int64"]],
    "makes": [[[7, 0], [2, "split_0"], "int64"], [[6, 0], [2], "int64"]],
    "decides": ["split_0"],
}
REFUSED: dict[str, dict[str, Any]] = {
    "a function of Python": {"compute": "eval"},
    "a function beside the ops": {"compute": "kept_of"},
    "an op of fewer arguments": {"compute": "nonzero", "settings": {}},
    "too few arguments": {"takes": SPLIT["takes"][:1]},
    "an argument among the settings": {"settings": {"most": None, "x": "a"}},
    "a setting that is none": {"settings": {"axis": 1}},
    "a setting of another kind": {"settings": {"most": [1]}},
    "objects": {"makes": [[[7, 0], [2], "object"], SPLIT["makes"][1]]},
}


def test_what_is_written_is_read() -> None:
    assert json.loads(json.dumps(to_json(from_json([SPLIT], is_open=True)))) == [SPLIT]


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_op(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_json([{**SPLIT, **change}], is_open=True)


COUNTED = {"compute": "nonzero", "settings": {}, "where": "node 'y'", "decides": ["nonzero_0"]}
TAKEN, MADE = [[2, 0], [3], "float32"], [[7, 0], [1, "nonzero_0"], "int64"]
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "more results": ({"takes": [TAKEN], "makes": [MADE, MADE]}, "1 results of 2 axes; expected"),
    "a result of other axes": ({"takes": [TAKEN], "makes": [[[7, 0], ["nonzero_0"], "int64"]]}, "1 results of 2 axes"),
    "an argument of other axes": (
        {"compute": "unique", "settings": {"axis": 4, "keep_order": False, "nan_differs": False}, "takes": [TAKEN]},
        "no op of such arguments",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_file_that_says_what_is_not_so(change: dict[str, Any], message: str) -> None:
    (compute,) = from_json([{**COUNTED, "makes": [MADE], **change}], is_open=True)
    assert isinstance(compute, Compute)
    with pytest.raises(ModelError, match=f"at node 'y': .*{message}"):
        computed(compute, lambda place, size: bytes(size), {})


TOO_LARGE = 1 << 63


@pytest.mark.parametrize("written", [TOO_LARGE, str(TOO_LARGE), f"{TOO_LARGE} * n", f"n - {TOO_LARGE}", -1, "-1", 2.0, None])
def test_what_is_no_size(written: Any) -> None:
    with pytest.raises(ValueError, match="is no"):
        read_size(written)


@pytest.mark.parametrize("shape", [[1 << 61, 1], [1 << 31, 1 << 30], ["n", 1 << 62]])
def test_a_tensor_larger_than_memory_can_be(shape: list[Any]) -> None:
    with pytest.raises(ValueError, match="is no count"):
        info_from_json(["x", shape, "float32"])


def test_slots_that_nothing_moves() -> None:
    written = {"ranges": {}, "regions": [], "instructions": [], "moving": 1, "equal": {}}
    with pytest.raises(ValueError, match="1 slots that change"):
        open_from_json(written, ())
