"""Every entry point that compiles accepts all compilation options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import pytest

import dlc
from dlc.options import CompileOptions, Options

# Options that are no arguments of an entry point, and their other form.
NOT_ARGUMENTS = {
    "until": "dlc run --stage, for the evaluator only",
    "verify": "DLC_VERIFY, for a process",
    "workers": "DLC_WORKERS, for a process",
    **dict.fromkeys(("replaced_kernels", "plan", "write_plan"), "options of dlc run, bench and diff: files for one model"),
    "device": "a part of the target, or DLC_DEVICE",
}


def test_every_option_is_an_argument_or_has_another_form() -> None:
    assert CompileOptions.__annotations__.keys() == {f.name for f in fields(Options)} - NOT_ARGUMENTS.keys()


@pytest.mark.parametrize("function", [dlc.compile_model, dlc.jit, dlc.from_torch, dlc.from_jax])
def test_every_compiling_function_accepts_all_options(function: Callable[..., Any]) -> None:
    annotations = {p.annotation for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD}
    assert annotations == {"Unpack[CompileOptions]"}


@pytest.mark.parametrize("call", [dlc.jit, partial(dlc.compile_model, "m.onnx"), partial(dlc.from_jax, abs)])
def test_an_unknown_option_raises_a_type_error(call: Callable[..., Any]) -> None:
    with pytest.raises(
        TypeError, match=r"dlc\.\w+\(\) got an unexpected keyword argument 'num_thread'; did you mean 'num_threads'"
    ):
        call(num_thread=2)


@pytest.mark.parametrize("options", [{"cache": "no"}, {"check_each_pass": "no"}, {"pipeline": 5}], ids=str)
def test_values_of_another_type_are_errors(options: dict[str, Any]) -> None:
    with pytest.raises(dlc.DTypeError, match=rf"test_options\.py:\d+: dlc\.jit: {next(iter(options))} = .*; expected"):
        dlc.jit(abs, **options)


def test_internal_options_are_not_arguments() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'workers'"):
        dlc.jit(workers=1)  # pyright: ignore[reportCallIssue]


def test_exceptions_are_options() -> None:
    assert NOT_ARGUMENTS.keys() <= {f.name for f in fields(Options)}
