"""Every entry point that compiles accepts all compilation options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

import dlc
from dlc.options import Options

# Options that an entry point accepts in another form.
ELSEWHERE = {
    "until": "dlc run --stage: of the evaluator alone",
    "verify": "DLC_VERIFY: of a whole process",
    "workers": "DLC_WORKERS: of a whole process",
    "device": "a part of the target, or DLC_DEVICE",
}
ALL = {f.name: f.default for f in fields(Options) if f.name not in ELSEWHERE}


@pytest.mark.parametrize("door", [dlc.compile_model, dlc.jit, dlc.from_torch, dlc.from_jax])
def test_every_compiling_function_accepts_all_options(door: Callable[..., Any]) -> None:
    parameters = inspect.signature(door).parameters
    assert ALL.keys() <= parameters.keys()
    # None leaves the default of the environment.
    by_environment = {"num_threads", "cache"}
    defaults = {name: None if name in by_environment else default for name, default in ALL.items()}
    assert {name: parameters[name].default for name in ALL} == defaults


def test_torch_compile_accepts_the_options_of_graphs() -> None:
    pytest.importorskip("torch")
    backend = pytest.importorskip("dlc.pytorch.backend")
    one_program = {"dump_ir", "pipeline", "check_each_pass"}
    assert {f.name for f in fields(backend.Settings)} - {"fallback", "target"} == ALL.keys() - one_program


def test_exceptions_are_options() -> None:
    assert ELSEWHERE.keys() <= {f.name for f in fields(Options)}
