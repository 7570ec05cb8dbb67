"""A short run of the mixed load; `python -m tests.serve.mixed_load` runs it for longer, and measures growth."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from tests.serve.mixed_load import Load, ServedLoad


def test_the_executor_returns_each_result_to_its_request() -> None:
    load = Load()
    load.run(1)
    assert load.outcomes["result"] > 0


def test_the_server_returns_each_result_to_its_request(tmp_path: Path) -> None:
    load = ServedLoad(tmp_path)
    try:
        load.run(4)
        load.require_idle()
    finally:
        load.stop()
    assert load.outcomes["200"] > 0 and load.outcomes["killed"] > 0
