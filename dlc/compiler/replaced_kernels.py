"""Replace kernels of a program by dumped kernels that were edited by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlc.backends.reference import EvaluationError, evaluate_function
from dlc.compiler.kernels import lower_kernel
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import ModelError, UnsupportedError
from dlc.instrument.verify import illegal_ops, verify
from dlc.ir import DYNAMIC_INDEX, Context, MemRefType, ModuleOp, Operation, ParseError, VerifyException, func, parse_module
from dlc.passes.base import Stage
from dlc.passes.types import memref_of
from dlc.pipelines import KERNEL_STAGES

_STAGE_LINE = re.compile(r"^//\s*stage: (\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class ReplacedKernel:
    """A kernel from a file, and the remaining stages."""

    kernel: func.FuncOp
    remaining_stages: tuple[Stage, ...]


def read_replacements(
    files: Mapping[str, Path], kernels: Mapping[str, Operation], stages: Sequence[Stage], context: Context
) -> dict[str, ReplacedKernel]:
    """Read the kernels that replace those with these names; a file is in the format of `kernels/NAME.STAGE.mlir` of a dump.

    A kernel of the stage `loops` is run by the evaluator once, on random numbers, to check its accesses. Raises ModelError for
    a file that is not such a kernel, and UnsupportedError for the name of another kernel.
    """
    for name in files:
        if name not in kernels:
            raise UnsupportedError(f"--replace-kernel {name}: the program has no such kernel; it has {', '.join(kernels)}")
    return {name: _read(path, kernels[name], stages, context) for name, path in files.items()}


def _read(path: Path, original: Operation, stages: Sequence[Stage], context: Context) -> ReplacedKernel:
    text = path.read_text("utf-8")
    stage = _stage_of(path, text, stages)
    function = _parse(path, text, context)
    end = next(k for k, s in enumerate(stages) if s.name == stage.name) + 1
    expected, _ = lower_kernel(original, stages[:end], context, check=False)
    if function.function_type != expected.function_type:
        for k, (got, wanted) in enumerate(zip(function.args, expected.args, strict=False)):
            if got.type != wanted.type:
                raise ModelError(f"{path}: argument {k} of @{function.sym_name.data} is {got.type}; expected {wanted.type}")
        counts = f"{len(function.args)} arguments; expected {len(expected.args)}"
        raise ModelError(f"{path}: @{function.sym_name.data} has {counts}: {expected.function_type}")
    if illegal := sorted(set(illegal_ops(ModuleOp([ModuleOp([function.clone()])]), stage))):
        raise ModelError(f"{path}: {', '.join(illegal)} is not legal at the end of stage {stage.name}")
    _check_accesses(path, function)
    function.sym_name = expected.sym_name
    function.attributes.update(expected.attributes)
    return ReplacedKernel(function, tuple(stages[end:]))


def _stage_of(path: Path, text: str, stages: Sequence[Stage]) -> Stage:
    """Return the stage at whose end a kernel was dumped."""
    match = _STAGE_LINE.search(text)
    if match is None:
        raise ModelError(f"{path}: expected the line `// stage: loops`, or another of {', '.join(KERNEL_STAGES)}, at the top")
    stage = next((s for s in stages if s.name == match[1]), None)
    if stage is None:
        line = text.count("\n", 0, match.start()) + 1
        names = ", ".join(s.name for s in stages)
        raise ModelError(f"{path}:{line}: stage {match[1]!r}: expected one of {names}")
    return stage


def _parse(path: Path, text: str, context: Context) -> func.FuncOp:
    try:
        module = parse_module(context, text, str(path))
        verify(module)
    except (ParseError, VerifyException) as error:
        raise ModelError(f"{path} is not valid IR: {str(error).strip()}") from error
    functions = list(module.ops)
    if len(functions) != 1 or not isinstance(functions[0], func.FuncOp):
        raise ModelError(f"{path}: {len(functions)} operations; expected one func.func")
    function = functions[0]
    function.detach()
    return function


def _check_accesses(path: Path, function: func.FuncOp) -> None:
    """Evaluate a kernel on buffers of static sizes; raise ModelError for an access that is out of bounds."""
    if not all(isinstance(a.type, MemRefType) for a in function.args):
        return
    types = [memref_of(a) for a in function.args]
    if any(DYNAMIC_INDEX in t.get_shape() for t in types):
        return
    random = np.random.default_rng(0)
    arrays: list[Any] = []
    for t in types:
        dtype = numpy_dtype(t.element_type)
        # Integers may be indices.
        is_float = dtype.kind not in "biu"
        arrays.append(random.random(t.get_shape()).astype(dtype) if is_float else np.zeros(t.get_shape(), dtype))
    try:
        evaluate_function(function, arrays)
    except EvaluationError as error:
        raise ModelError(f"{path}: {error}") from error
