"""JSON files that users give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from dlc.errors import ModelError
from dlc.files.regular_files import read_model_file


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises ModelError if it holds none."""
    value = read_json_value(path)
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected a JSON object")
    return cast("dict[str, Any]", value)


def read_json_value(path: Path) -> object:
    """Return the value in a JSON file. Raises ModelError if it cannot be read."""
    content = read_model_file(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON: {error}") from error
