"""What Python users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from dlc.compiler import compile, load_program
from dlc.model import Model
from dlc.options import Options


def compile_model(
    model: str | PathLike[str],
    *,
    target: str = "cpu",
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    num_threads: int | None = None,
    dump_ir: str | PathLike[str] | None = None,
    pipeline: str | None = None,
) -> Model:
    """The ONNX file `model` compiled for `target`: `cpu` (this machine), `cpu:generic`, `cpu:avx2`, `cpu:avx512`, `reference`.

    `input_shapes` gives sizes to inputs whose sizes the file leaves open; a model that still has symbolic sizes is compiled
    when it is called, once per set of input shapes. `num_threads=None` uses the processors that this process may use.
    `dump_ir` is a folder for the IR after every pass; `pipeline` (`"a,b{k=1}"`) replaces the passes.

    Raises ModelError for a malformed file, UnsupportedError with everything in the model that dlc does not support,
    ShapeError for shapes that contradict the model, DeviceError for a target that this machine is not.
    """
    program = load_program(Path(model), input_shapes)
    folder = Path(dump_ir) if dump_ir is not None else None
    return compile(program, target, Options.of(num_threads=num_threads, dump_ir=folder, pipeline=pipeline))
