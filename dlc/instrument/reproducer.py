"""Reproducers of faults: a folder with the program or kernel before and after the faulty step, its inputs, and a command line.

wrong/before.mlir   before the faulty pass: for `dlc bisect`, `dlc run` and `dlc reduce`
wrong/after.mlir    after the pass: `dlc run wrong/after.mlir --target reference --input wrong`
wrong/x.npy         each input by its name
wrong/weights/      the weights store, if the program has weights
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlc.dialects.dl.base import Array, Tensor, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dialects.entry import entry_of
from dlc.files.atomic_writes import write_text
from dlc.instrument.capture import KernelRun
from dlc.instrument.dump import WEIGHTS, module_text
from dlc.ir import ArrayAttr, Block, DictionaryAttr, ModuleOp, Operation, Region, StringAttr, func, print_module
from dlc.options import Environment
from dlc.weights import WeightStore


@dataclass(frozen=True)
class Reproducer:
    """A folder with the files of a fault, and the command line that reproduces it."""

    folder: Path
    line: str

    def __str__(self) -> str:
        return f"  before.mlir, after.mlir and the inputs are in {self.folder}\n  to reproduce it: {self.line}"


def input_names(main: func.FuncOp) -> list[str]:
    """Return the names of the entry's arguments."""
    arg_attrs = main.arg_attrs.data if main.arg_attrs is not None else [DictionaryAttr({})] * len(main.args)
    names = [attributes.data.get("dl.name") for attributes in arg_attrs]
    return [name.data if isinstance(name, StringAttr) else f"input{k}" for k, name in enumerate(names)]


def save(
    folder: Path | None,
    before: ModuleOp,
    after: ModuleOp | None,
    inputs: Sequence[Array],
    weights: WeightStore,
    remaining: str,
    settings: Sequence[str] = (),
) -> Reproducer:
    """Write a reproducer; `remaining` are the passes from the faulty one on, `settings` are options of the command line."""
    folder = folder or Path(tempfile.mkdtemp(prefix="dlc-wrong-"))
    save_program(folder / "before.mlir", before, inputs, weights, remaining)
    if after is not None:
        write_text(folder / "after.mlir", print_module(after))
    return Reproducer(folder, shell_command("bisect", str(folder / "before.mlir"), "--input", str(folder), *settings))


def shell_command(*words: str) -> str:
    """Return a command line of `dlc` for a shell, with the environment variables that change compilation."""
    return environment_prefix() + shlex.join(["dlc", *words])


def environment_prefix() -> str:
    """Return the assignments before a command line that set this process's variables that change compilation."""
    environment = Environment.read()
    settings = {"DLC_CPU": environment.cpu, "DLC_DEVICE": environment.device}
    return "".join(f"{name}={shlex.quote(value)} " for name, value in settings.items() if value)


def save_program(file: Path, module: ModuleOp, inputs: Sequence[Array], weights: WeightStore, remaining: str | None) -> None:
    """Write a module, and next to it its inputs and weights; `remaining` are the passes that have not run yet."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, module_text(module, remaining) if remaining is not None else print_module(module))
    for name, array in zip(input_names(entry_of(module)), inputs, strict=True):
        np.save(file.parent / f"{name}.npy", array, allow_pickle=False)
    if weights:
        weights.save(file.parent / WEIGHTS)


def standalone_kernels(runs: Sequence[tuple[Operation, KernelRun]]) -> ModuleOp:
    """Return a program that runs each kernel, at any stage, on separate inputs: `x0`, `x1`, … in order."""
    block = Block()
    dispatches: list[DispatchOp] = []
    for _, run in runs:
        inputs = [block.insert_arg(_type(a), len(block.args)) for a in run.inputs]
        dispatches.append(DispatchOp(run.kernel, inputs, [_type(a) for a in run.outputs]))
    block.add_ops([*dispatches, func.ReturnOp(*(r for d in dispatches for r in d.outputs))])
    types = [a.type for a in block.args], [r.type for d in dispatches for r in d.outputs]
    main = func.FuncOp("main", types, Region(block))
    main.arg_attrs = ArrayAttr([DictionaryAttr({"dl.name": StringAttr(f"x{k}")}) for k in range(len(main.args))])
    return ModuleOp([main, *(kernel.clone() for kernel, _ in runs)])


def _type(array: Array) -> Tensor:
    return tensor_type(array.shape, element_type(array.dtype))
