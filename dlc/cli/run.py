"""`dlc run`: run a model and print or save its outputs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
from numpy.typing import NDArray
from rich.markup import escape

from dlc.arrays import TensorInfo, format_type
from dlc.caching.model_cache import MLIR_SUFFIX
from dlc.cli.common import (
    ARTIFACT_SUFFIX,
    examples,
    fail,
    json_option,
    model_argument,
    options_on_command_line,
    progress_display,
    reports_errors,
    target_option,
)
from dlc.cli.compile_options import COMPILATION_PARAMETERS, IR_OPTIONS, NUMERIC_OPTIONS, PLAN_OPTIONS, compile_options
from dlc.cli.console import out
from dlc.cli.input_arrays import make_inputs
from dlc.cli.mesh_options import InputSpec, input_specs, mesh_options
from dlc.cli.shape_options import Shapes, shape_option
from dlc.cli.structured_values import flatten_value
from dlc.cli.transform_options import TransformCommand, transform_options
from dlc.errors import DlcError, ShapeError, UnsupportedError
from dlc.files.atomic_writes import atomic_write, require_writable
from dlc.instrument.report import Progress, ProgressEvent
from dlc.models.model_files import compile_file, import_program
from dlc.options import Options
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.start import is_first_rank, job_fails_on_error
from dlc.runtime.load import load
from dlc.runtime.models.model import Model
from dlc.shapes.dims import substitute
from dlc.shapes.input_sizes import require_matching_inputs
from dlc.shapes.shape_specs import bind_symbolic_sizes
from dlc.training.model_transforms import ModelTransform
from dlc.value_types import OBJECT_DTYPE

# Maximum number of printed elements of a list.
_MAX_SHOWN_ELEMENTS = 4

input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE.npy|random|FOLDER|FILE.npz",
    help="An input, or all inputs from a folder or an .npz file; others are random. List elements: NAME[0]=…. Repeatable.",
)
seed_option = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random inputs.")


def load_or_compile(
    model: Path,
    shapes: Shapes,
    inputs: tuple[str, ...],
    seed: int,
    target: str,
    options: Options,
    progress: Progress | None,
    transform: ModelTransform | None = None,
    unchecked: bool = True,
) -> tuple[Model, dict[str, NDArray[Any]]]:
    """Load or compile the model in a file and read its inputs.

    Inputs are checked before compilation, so that a wrong one is reported at once. A dumped module (.mlir) is also evaluated
    before compilation, to check that its accesses are in bounds, unless it is `unchecked`.
    """
    if model.suffix == ARTIFACT_SUFFIX:
        if transform is not None:
            raise click.UsageError(f"{model} is already compiled: derivatives and training steps need the ONNX model")
        if compile_options := options_on_command_line(COMPILATION_PARAMETERS):
            raise click.UsageError(
                f"{model} is already compiled: remove {' and '.join(compile_options)}, or give the ONNX model"
            )
        compiled = load(model, num_threads=options.num_threads, cpus=options.cpus)
        return compiled, make_inputs(with_bound_sizes(model, compiled.inputs, shapes), inputs, seed, compiled.defaults)
    arrays: dict[str, Any] = {}

    def examine(infos: tuple[TensorInfo, ...], optional: Collection[str]) -> None:
        arrays.update(make_inputs(infos, inputs, seed, optional))
        array_infos = [info for info in infos if info.name in arrays and info.dtype != OBJECT_DTYPE]
        require_matching_inputs(model.stem, array_infos, [arrays[info.name] for info in array_infos])
        if model.suffix == MLIR_SUFFIX and not unchecked:
            # Imported here because compiled models run without the compiler.
            from dlc.debug.bounds_check import check_accesses

            check_accesses(import_program(model, None, None, None), [arrays[info.name] for info in infos])

    return compile_file(model, target, shapes, options, transform=transform, progress=progress, examine=examine), arrays


def with_bound_sizes(model: Path, infos: Sequence[TensorInfo], shapes: Shapes) -> tuple[TensorInfo, ...]:
    """Return the inputs of a compiled model with its symbolic dimensions replaced by the sizes in `shapes`."""
    try:
        sizes = bind_symbolic_sizes(infos, shapes)
    except ShapeError as error:
        raise click.UsageError(f"{model} is already compiled: {error}") from None
    return tuple(replace(info, shape=tuple(substitute(size, sizes) for size in info.shape)) for info in infos)


@click.command(
    "run",
    cls=TransformCommand,
    epilog=examples(
        "dlc run model.onnx --input x=x.npy -o outputs.npz",
        "dlc run model.dlc --input inputs.npz",
        "dlc run model.onnx --shape batch=8                     random inputs",
    ),
)
@model_argument
@input_option
@target_option
@shape_option
@click.option(
    "--each",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Run once for each set of inputs in FOLDER, sorted by name: folders of NAME.npy files and .npz files.",
)
@seed_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Save the outputs to an .npz file; with --each, to a folder.",
)
@click.option(
    "--first-nan",
    is_flag=True,
    help="Find the op that produces the first NaN of an output; exit status 1 if there is one.",
)
@transform_options
@click.option("--stage", help="With --target reference: evaluate the module at the end of this stage.")
@click.option(
    "--unchecked",
    is_flag=True,
    help="Skip the bounds check of a dumped module of loops (.mlir), which evaluates it first.",
)
@mesh_options(required=False)
@compile_options("num_threads", "cpus", "inter_op", *NUMERIC_OPTIONS, "cache", *IR_OPTIONS, *PLAN_OPTIONS)
@json_option
@reports_errors
@job_fails_on_error()
def run_command(
    model: Path,
    inputs: tuple[str, ...],
    target: str,
    shapes: Shapes,
    each: Path | None,
    seed: int,
    output: Path | None,
    first_nan: bool,
    stage: str | None,
    unchecked: bool,
    mesh: Mesh | None,
    specs: Mapping[str, InputSpec],
    as_json: bool,
    transform: ModelTransform | None,
    compile_settings: dict[str, Any],
) -> None:
    """Runs a model and prints or saves its outputs.

    MODEL is an ONNX or TFLite file, a compiled model (.dlc), a PyTorch program saved with torch.export.save (.pt2), or an
    MLIR module (.mlir): StableHLO or a dump. A derivative or training step of an ONNX model can be run too. With --each the
    model runs once per set of inputs in a folder. With --first-nan the reference evaluator runs the model op by op. With
    --mesh, the ranks of `mpiexec -n RANKS dlc run …` share the work; rank 0 prints and writes.
    """
    if mesh is not None and (first_nan or stage is not None or model.suffix == ARTIFACT_SUFFIX):
        raise click.UsageError("--mesh excludes --first-nan, --stage and compiled models")
    if stage is not None and target != "reference":
        raise click.UsageError("--stage needs --target reference; native code is generated from the last stage only")
    if each is not None and (first_nan or inputs):
        raise click.UsageError("--each reads its inputs from a folder: remove --input and --first-nan")
    if output is not None and output.is_dir() and each is None:
        raise click.UsageError(f"-o {output}: expected a file name for one .npz file, got a folder")
    if first_nan:
        _report_first_nan(model, shapes, inputs, seed, transform, as_json)
        return
    options = Options.of(**compile_settings, until=stage)
    cases = _cases(each) if each is not None else []
    if output is not None and cases and output.exists() and not output.is_dir():
        raise click.UsageError(f"-o {output}: expected a folder with --each, got a file")
    if output is not None and not cases:
        require_writable(output)
    with progress_display() as progress:
        first_case = (str(cases[0]),) if cases else inputs
        if mesh is None:
            compiled, arrays = load_or_compile(model, shapes, first_case, seed, target, options, progress, transform, unchecked)
        else:
            compiled, arrays = _compile_on_mesh(
                model, mesh, specs, shapes, first_case, seed, target, options, progress, transform
            )
        results: dict[str, Any] = _run_each(compiled, cases, seed, output, progress) if cases else compiled(arrays)
    if not is_first_rank():
        return
    if output is not None:
        if not cases:
            _save(output, results)
        if not as_json:
            out.print(f"Saved as {escape(str(output))}.")
    elif as_json:
        click.echo(json.dumps(results, default=lambda value: value.tolist()))
    elif not cases:
        for name, value in results.items():
            _print_output(name, value)
    else:
        for case, outputs in results.items():
            out.print(escape(case), style="bold")
            for name, value in outputs.items():
                _print_output(name, value)


def _compile_on_mesh(
    model: Path,
    mesh: Mesh,
    specs: Mapping[str, InputSpec],
    shapes: Shapes,
    inputs: tuple[str, ...],
    seed: int,
    target: str,
    options: Options,
    progress: Progress | None,
    transform: ModelTransform | None,
) -> tuple[Model, dict[str, NDArray[Any]]]:
    """Compile the model in a file for a mesh and read its inputs."""
    from dlc.compiler.sharding import stored_shardings
    from dlc.distributed.mesh_model import compile_on_mesh

    program = import_program(model, shapes, None, transform)
    arrays = make_inputs(program.inputs, inputs, seed, program.defaults)
    annotations = input_specs(mesh, specs, program.inputs, program.defaults, stored_shardings(program.module)[0])
    return compile_on_mesh(program, mesh, annotations, target, options, progress), arrays


def _cases(folder: Path) -> list[Path]:
    """Return the paths of the sets of inputs in a folder. Raises UsageError if there are none."""
    case_paths = sorted(p for p in folder.iterdir() if p.suffix == ".npz" or (p.is_dir() and any(p.glob("*.npy"))))
    if not case_paths:
        raise click.UsageError(f"--each {folder}: expected folders of NAME.npy files or .npz files, found neither")
    return case_paths


def _run_each(
    compiled: Model, cases: Sequence[Path], seed: int, output: Path | None, progress: Progress | None
) -> dict[str, dict[str, Any]]:
    """Run the model on each set of inputs; return the outputs by set name, or {} if they are written to the folder `output`."""
    outputs_by_case: dict[str, dict[str, Any]] = {}
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    for k, case in enumerate(cases):
        if progress is not None:
            progress(ProgressEvent("running", case.name, k, len(cases)))
        try:
            results = compiled(make_inputs(compiled.inputs, (str(case),), seed, compiled.defaults))
        except DlcError as error:
            raise type(error)(f"{case}: {error}") from error
        except click.BadParameter as error:
            raise click.BadParameter(f"{case}: {error.message}", param_hint="--each") from None
        if output is None:
            outputs_by_case[case.name] = results
        elif is_first_rank():
            _save(output / f"{case.name.removesuffix('.npz')}.npz", results)
    return outputs_by_case


def _save(file: Path, results: Mapping[str, Any]) -> None:
    # A file object, because NumPy would add a suffix to a path.
    with atomic_write(file) as opened:
        arrays = [named_array for name, value in results.items() for named_array in flatten_value(name, value)]
        np.savez(opened, allow_pickle=False, **{name: _as_npz_array(name, value) for name, value in arrays})


def _print_output(name: str, value: Any) -> None:
    """Print an output; of a list only the first elements."""
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        out.print(f"{escape(name)}: {len(elements)} elements")
        for k, element in enumerate(elements[:_MAX_SHOWN_ELEMENTS]):
            _print_output(f"{name}[{k}]", element)
        return
    if value is None or isinstance(value, dict):
        out.print(escape(f"{name}: {value}"))
        return
    out.print(escape(f"{name}: {format_type(value.dtype, value.shape)}"))
    out.print(escape(np.array2string(np.asarray(value), precision=6, threshold=64)))


def _as_npz_array(name: str, value: Any) -> NDArray[Any]:
    """Return an array as .npz files store it: strings as NumPy's string dtype. Raises UnsupportedError for a dict."""
    if isinstance(value, dict):
        raise UnsupportedError(f"output '{name}' is a dict, which an .npz file cannot store; print JSON with --json")
    array = np.asarray(value)
    return array.astype(str) if array.dtype == OBJECT_DTYPE else array


def _report_first_nan(
    model: Path, shapes: Shapes, inputs: tuple[str, ...], seed: int, transform: ModelTransform | None, as_json: bool
) -> None:
    """Report the op that produces the first NaN of the outputs; exit with status 1 if there is one."""
    if model.suffix == ARTIFACT_SUFFIX:
        raise click.UsageError(f"{model} is already compiled: --first-nan needs the ONNX model")
    # Imported here because compiled models run without the compiler.
    from dlc.debug.nan_origin import find_first_nan

    with progress_display():
        program = import_program(model, shapes, None, transform)
        arrays_by_name = {**program.defaults, **make_inputs(program.inputs, inputs, seed, program.defaults)}
        arrays = [arrays_by_name[info.name] for info in program.inputs]
        first_nan = find_first_nan(program.for_inputs(arrays), arrays)
    if as_json:
        click.echo(json.dumps(None if first_nan is None else asdict(first_nan), indent=2))
        raise click.exceptions.Exit(int(first_nan is not None))
    if first_nan is not None:
        fail(f"{model}: {first_nan}")
    out.print(f"{escape(str(model))}: no output contains a NaN")
