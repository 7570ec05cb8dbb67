"""`dlc run`: a model on inputs, and its outputs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import click
import numpy as np
from click.core import ParameterSource
from numpy.typing import NDArray
from rich.markup import escape

from dlc.arrays import TensorInfo, type_text
from dlc.caching.model_cache import DUMPED
from dlc.cli.derived import DerivingCommand, derived_options
from dlc.cli.formed import flattened
from dlc.cli.given import Shapes, shape_option
from dlc.cli.shared import (
    ARTIFACT_SUFFIX,
    check_option,
    fail,
    json_option,
    make_inputs,
    model_argument,
    no_cache_option,
    numerics_option,
    out,
    precision_option,
    reports_errors,
    shown_progress,
    target_option,
    threads_option,
    weights_options,
)
from dlc.derived import Derived
from dlc.dims import substitute
from dlc.errors import DlcError, ShapeError, UnsupportedError
from dlc.files.whole_files import require_writable, written_whole
from dlc.forms import OBJECTS
from dlc.given_shapes import sizes_given
from dlc.instrument.report import Doing, Progress
from dlc.model_files import compile_file, program_of
from dlc.options import Options
from dlc.runtime.load import load
from dlc.runtime.models.model import Model, require_fitting

# How many elements of a list are shown.
_MOST_SHOWN = 4

# Parameters that say how a model is compiled.
_COMPILING = ("target", "numerics", "precision", "weights", "group", "dump_ir", "pipeline", "check_each_pass")

input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE.npy|random|FOLDER|FILE.npz",
    help="An input, or a folder or an .npz file of them; else random. Elements of a list: NAME[0]=…. Repeatable.",
)
seed_option = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random inputs.")


def prepared(
    model: Path,
    shapes: Shapes,
    inputs: tuple[str, ...],
    seed: int,
    target: str,
    options: Options,
    progress: Progress | None,
    derived: Derived | None = None,
    unchecked: bool = True,
) -> tuple[Model, dict[str, NDArray[Any]]]:
    """The model in a file, loaded or compiled, and its inputs, which are looked at first: a wrong one is told at once.

    So is a dumped kernel that reads or writes outside of its buffers, unless it is `unchecked`.
    """
    if model.suffix == ARTIFACT_SUFFIX:
        if derived is not None:
            raise click.UsageError(f"{model} is compiled already: derivatives and training steps need the ONNX model")
        if given := _given(_COMPILING):
            raise click.UsageError(f"{model} is compiled already: leave out {' and '.join(given)}, or give the ONNX model")
        compiled = load(model, num_threads=options.num_threads)
        return compiled, make_inputs(sized(model, compiled.inputs, shapes), inputs, seed, compiled.defaults)
    arrays: dict[str, Any] = {}

    def examine(infos: tuple[TensorInfo, ...], optional: Collection[str]) -> None:
        arrays.update(make_inputs(infos, inputs, seed, optional))
        given = [info for info in infos if info.name in arrays and info.dtype != OBJECTS]
        require_fitting(model.stem, given, [arrays[info.name] for info in given])
        if model.suffix == DUMPED and not unchecked:
            # A model that was compiled before runs without a compiler.
            from dlc.debug.accesses import check_accesses

            check_accesses(program_of(model, None, None, None), [arrays[info.name] for info in infos])

    return compile_file(model, target, shapes, options, derived=derived, progress=progress, examine=examine), arrays


def _given(names: Collection[str]) -> list[str]:
    """The options, of parameters of these names, that the command line has."""
    context = click.get_current_context()
    known = (p for p in context.command.params if p.name in names)
    said = [p for p in known if context.get_parameter_source(str(p.name)) is ParameterSource.COMMANDLINE]
    return [max(option.opts, key=len) for option in said]


def sized(model: Path, infos: Sequence[TensorInfo], shapes: Shapes) -> tuple[TensorInfo, ...]:
    """The inputs of a compiled model, with the sizes that those that it leaves open shall have."""
    try:
        sizes = sizes_given(infos, shapes)
    except ShapeError as error:
        raise click.UsageError(f"{model} is compiled already: {error}") from None
    return tuple(replace(info, shape=tuple(substitute(size, sizes) for size in info.shape)) for info in infos)


@click.command("run", cls=DerivingCommand)
@model_argument
@input_option
@target_option
@shape_option
@click.option(
    "--each",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Run once for each folder of NAME.npy files, and each .npz file, in FOLDER, in the order of their names.",
)
@seed_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Save the outputs as an .npz file; with --each as a folder of such."
)
@click.option(
    "--first-nan", is_flag=True, help="Say which op makes the first NaN that an output holds, and end with 1 if one does."
)
@derived_options
@click.option("--stage", help="With --target reference: evaluate the module at the end of this stage.")
@click.option("--dump-ir", type=click.Path(file_okay=False, path_type=Path), help="Write the IR after every pass here.")
@click.option("--pipeline", metavar="PASSES", help='Run these passes, such as "a,b{k=1}", not the target\'s.')
@check_option
@click.option(
    "--unchecked",
    is_flag=True,
    help="Do not evaluate a dumped module (.mlir) of loops first, to see that it stays in its buffers.",
)
@threads_option
@numerics_option
@precision_option
@weights_options
@no_cache_option
@json_option
@reports_errors
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
    dump_ir: Path | None,
    pipeline: str | None,
    check_each_pass: bool,
    unchecked: bool,
    num_threads: int | None,
    numerics: str,
    precision: str,
    weights: str,
    group: int,
    no_cache: bool,
    as_json: bool,
    derived: Derived | None,
) -> None:
    """Runs a model, and prints or saves its outputs.

    MODEL is an ONNX or TFLite file, a compiled model (.dlc), what torch.export.save wrote (.pt2), or a module of StableHLO or
    of a dump (.mlir). It runs once, or with --each once for each set of inputs in a folder; of an ONNX file also a derivative
    or a training step. With --first-nan the model is evaluated op by op instead, on the reference.
    """
    if stage is not None and target != "reference":
        raise click.UsageError("--stage needs --target reference: native code is made from the last stage")
    if each is not None and (first_nan or inputs):
        raise click.UsageError("--each takes its inputs from a folder: leave out --input and --first-nan")
    if output is not None and output.is_dir() and each is None:
        raise click.UsageError(f"-o {output}: it is a folder, and the outputs are one .npz file")
    if first_nan:
        _tell_first_nan(model, shapes, inputs, seed, derived, as_json)
        return
    options = Options.of(
        dump_ir=dump_ir,
        pipeline=pipeline,
        check_each_pass=check_each_pass,
        num_threads=num_threads,
        numerics=numerics,
        precision=precision,
        weights=weights,
        group=group,
        until=stage,
        cache=False if no_cache else None,
    )
    cases = _cases(each) if each is not None else []
    if output is not None and cases and output.exists() and not output.is_dir():
        raise click.UsageError(f"-o {output}: with --each it is a folder, and this is a file")
    if output is not None and not cases:
        require_writable(output)
    with shown_progress() as progress:
        given = (str(cases[0]),) if cases else inputs
        compiled, arrays = prepared(model, shapes, given, seed, target, options, progress, derived, unchecked)
        results: dict[str, Any] = _run_each(compiled, cases, seed, output, progress) if cases else compiled(arrays)
    if output is not None:
        if not cases:
            _save(output, results)
        if not as_json:
            out.print(f"Saved as {escape(str(output))}.")
    elif as_json:
        click.echo(json.dumps(results, default=lambda value: value.tolist()))
    elif not cases:
        for name, value in results.items():
            _show(name, value)
    else:
        for case, outputs in results.items():
            out.print(escape(case), style="bold")
            for name, value in outputs.items():
                _show(name, value)


def _cases(folder: Path) -> list[Path]:
    """The sets of inputs in a folder; ends with a message if there are none."""
    found = sorted(p for p in folder.iterdir() if p.suffix == ".npz" or (p.is_dir() and any(p.glob("*.npy"))))
    if not found:
        raise click.UsageError(f"--each {folder}: it has neither folders of NAME.npy files nor .npz files")
    return found


def _run_each(
    compiled: Model, cases: Sequence[Path], seed: int, output: Path | None, progress: Progress | None
) -> dict[str, dict[str, Any]]:
    """What the model makes of each set of inputs, by its name; or nothing, if it is written to the folder `output`."""
    made: dict[str, dict[str, Any]] = {}
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    for k, case in enumerate(cases):
        if progress is not None:
            progress(Doing("running", case.name, k, len(cases)))
        try:
            results = compiled(make_inputs(compiled.inputs, (str(case),), seed, compiled.defaults))
        except DlcError as error:
            raise type(error)(f"{case}: {error}") from error
        except click.BadParameter as error:
            raise click.BadParameter(f"{case}: {error.message}", param_hint="--each") from None
        if output is None:
            made[case.name] = results
        else:
            _save(output / f"{case.name.removesuffix('.npz')}.npz", results)
    return made


def _save(file: Path, results: Mapping[str, Any]) -> None:
    # A file object, because NumPy would add a suffix to a name.
    with written_whole(file) as opened:
        arrays = [found for name, value in results.items() for found in flattened(name, value)]
        np.savez(opened, allow_pickle=False, **{name: _saved(name, value) for name, value in arrays})


def _show(name: str, value: Any) -> None:
    """An output; of a list the first few elements."""
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        out.print(f"{escape(name)}: {len(elements)} elements")
        for k, element in enumerate(elements[:_MOST_SHOWN]):
            _show(f"{name}[{k}]", element)
        return
    if value is None or isinstance(value, dict):
        out.print(escape(f"{name}: {value}"))
        return
    out.print(escape(f"{name}: {type_text(value.dtype, value.shape)}"))
    out.print(escape(np.array2string(np.asarray(value), precision=6, threshold=64)))


def _saved(name: str, value: Any) -> NDArray[Any]:
    """An array as an .npz file has it: text by NumPy's dtype of strings. Raises UnsupportedError for a dict."""
    if isinstance(value, dict):
        raise UnsupportedError(f"output '{name}' is no array, which is all that an .npz file holds; write JSON, --json")
    array = np.asarray(value)
    return array.astype(str) if array.dtype == OBJECTS else array


def _tell_first_nan(
    model: Path, shapes: Shapes, inputs: tuple[str, ...], seed: int, derived: Derived | None, as_json: bool
) -> None:
    """Says which op makes the first NaN of the outputs; ends with status 1 if they hold one."""
    if model.suffix == ARTIFACT_SUFFIX:
        raise click.UsageError(f"{model} is compiled already: --first-nan needs the ONNX model")
    # A model that was compiled before runs without a compiler.
    from dlc.debug.nans import first_nan_of

    with shown_progress():
        program = program_of(model, shapes, None, derived)
        given = {**program.defaults, **make_inputs(program.inputs, inputs, seed, program.defaults)}
        arrays = [given[info.name] for info in program.inputs]
        require_fitting(program.name, program.inputs, arrays)
        found = first_nan_of(program.for_inputs(arrays), arrays)
    if as_json:
        click.echo(json.dumps(None if found is None else asdict(found), indent=2))
        raise click.exceptions.Exit(int(found is not None))
    if found is not None:
        fail(f"{model}: {found}")
    out.print(f"{escape(str(model))}: no output holds a NaN")
