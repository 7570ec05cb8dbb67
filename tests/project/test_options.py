"""Every entry point that compiles accepts all compilation options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

import dlc
from dlc.options import Options

# Options that are no arguments of an entry point, and their other form.
NOT_ARGUMENTS = {
    "until": "dlc run --stage, for the evaluator only",
    "verify": "DLC_VERIFY, for a process",
    "workers": "DLC_WORKERS, for a process",
    **dict.fromkeys(("replaced_kernels", "plan", "write_plan"), "options of dlc run, bench and diff: files for one model"),
    "device": "a part of the target, or DLC_DEVICE",
}
DEFAULTS = {f.name: f.default for f in fields(Options) if f.name not in NOT_ARGUMENTS}


@pytest.mark.parametrize("function", [dlc.compile_model, dlc.jit, dlc.from_torch, dlc.from_jax])
def test_every_compiling_function_accepts_all_options(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert DEFAULTS.keys() <= parameters.keys()
    # None leaves the default of the environment.
    environment_defaults = {"num_threads", "cache"}
    defaults = {name: None if name in environment_defaults else default for name, default in DEFAULTS.items()}
    assert {name: parameters[name].default for name in DEFAULTS} == defaults


def test_torch_compile_accepts_the_options_of_graphs() -> None:
    pytest.importorskip("torch")
    backend = pytest.importorskip("dlc.pytorch.backend")
    # PyTorch waits for each graph.
    one_program = {"dump_ir", "pipeline", "check_each_pass", "streams"}
    assert {f.name for f in fields(backend.Settings)} - {"fallback", "target"} == DEFAULTS.keys() - one_program


def test_exceptions_are_options() -> None:
    assert NOT_ARGUMENTS.keys() <= {f.name for f in fields(Options)}
