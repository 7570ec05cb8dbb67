"""What a file says that Python computes: ops that it knows, of what they take, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlc.runtime.saving.header.instructions import from_json, to_json

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
