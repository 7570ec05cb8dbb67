"""`dlc compile`, which is `compile-model` too: a model to native code, or to the text of any stage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from numpy.typing import NDArray

from dlc.cli.derived import DerivingCommand, derived_options
from dlc.cli.given import Shapes, each_shape_option, each_value_option
from dlc.cli.several import compile_each, programs_in
from dlc.cli.shared import (
    ARTIFACT_SUFFIX,
    Numbers,
    check_option,
    json_option,
    make_inputs,
    model_argument,
    no_cache_option,
    numerics_option,
    out,
    precision_option,
    read_array,
    reports_errors,
    show_log,
    shown_progress,
    target_option,
    threads_option,
    weights_options,
)
from dlc.cli.tables import print_model, print_passes, print_phases, print_tuned, summary
from dlc.deploy import SUFFIXES, runs_without_python, write_library
from dlc.derived import Derived
from dlc.dims import is_static
from dlc.files.whole_files import require_writable, write_whole_text
from dlc.instrument.report import Report
from dlc.model_files import compile_file, program_of
from dlc.options import Options
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.model import Model
from dlc.target import host_supports

if TYPE_CHECKING:
    from dlc.compiler import Program

OUTPUT = click.Path(dir_okay=False, path_type=Path)


@click.command("compile", cls=DerivingCommand)
@model_argument
@target_option
@each_shape_option
@each_value_option
@derived_options
@click.option(
    "--emit",
    "form",
    metavar="FORM",
    help="Print the program at the end of a stage instead (dl, fusion, linalg, tiling, loops, host), or its kernels "
    "(llvm, asm, opencl).",
)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    help="Write the compiled model here: a .dlc file, or a library or object for C (.so, .o, .a) "
    "and its header; with --emit, the text.",
)
@click.option("--dump-ir", type=click.Path(file_okay=False, path_type=Path), help="Write the IR after every pass here.")
@click.option("--pipeline", metavar="PASSES", help='Run these passes, such as "a,b{k=1}", not the target\'s.')
@click.option("--print-pipeline", is_flag=True, help="Print the passes that would run, by stage, and stop.")
@check_option
@click.option("--time-passes", is_flag=True, help="Print how long each pass took.")
@click.option("--tune", type=Numbers(0), default=0, metavar="SECONDS", help="Measure tile plans for so long.")
@threads_option
@numerics_option
@precision_option
@weights_options
@no_cache_option
@json_option
@click.option("-v", "--verbose", is_flag=True, help="List the kernels, and tell of the cache.")
@reports_errors
def compile_command(
    model: Path,
    target: str,
    shapes: list[Shapes],
    values: list[dict[str, Path]],
    form: str | None,
    output: Path | None,
    dump_ir: Path | None,
    pipeline: str | None,
    print_pipeline: bool,
    check_each_pass: bool,
    time_passes: bool,
    tune: float,
    num_threads: int | None,
    numerics: str,
    precision: str,
    weights: str,
    group: int,
    no_cache: bool,
    as_json: bool,
    verbose: bool,
    derived: Derived | None,
) -> None:
    """Compiles a model to native code, or to the text of a stage.

    MODEL is an ONNX or TFLite file, what torch.export.save wrote (.pt2), or a module of StableHLO or of a dump (.mlir).

    A model whose input sizes are open is compiled once for all of them where that can be, else when it is run, for each; give
    them with --shape to compile it for these alone, and one more than once for a program for each. What -o wrote is run with
    `dlc run`, in Python with `dlc.load`, or in C with dlc.h (`dlc header`).

    Of an ONNX file it also compiles a derivative (--vjp, --jvp, --hvp) with respect to inputs and weights (--wrt), or a step
    of its training (--train-step with --loss): models like any other, whose weights are inputs that a call may leave out.
    """
    if output is not None and form is None and output.suffix not in (ARTIFACT_SUFFIX, *SUFFIXES):
        raise click.UsageError(
            f"the name of a compiled model ends in {ARTIFACT_SUFFIX}, that of a library or object for C in one of "
            f"{', '.join(SUFFIXES)}; for text, say which with --emit"
        )
    # A compilation whose passes are timed must take place.
    options = Options.of(
        pipeline=pipeline,
        dump_ir=dump_ir,
        check_each_pass=check_each_pass,
        num_threads=num_threads,
        numerics=numerics,
        precision=precision,
        weights=weights,
        group=group,
        tune=tune,
        cache=False if no_cache or time_passes else None,
    )
    if verbose:
        show_log()
    if output is not None:
        require_writable(output)
    header: Path | None = None
    if len(shapes) * len(values) > 1 and (print_pipeline or form is not None or check_each_pass or dump_ir is not None):
        raise click.UsageError("an input's shape or value is given more than once: what is printed or checked is one program")
    report, known = Report(), [{name: read_array(file) for name, file in given.items()} for given in values]
    with shown_progress() as progress:
        if print_pipeline or form is not None:
            _print_text(program_of(model, shapes[0], known[0], derived), target, options, form, output)
            return

        def compiled_for(shape: Shapes, value: Mapping[str, NDArray[Any]]) -> Model:
            return compile_file(model, target, shape, options, values=value, derived=derived, report=report, progress=progress)

        compiled = compile_each(compiled_for, shapes, known)
        if check_each_pass:
            # Passes are checked on the inputs of the first run.
            compiled(make_inputs(compiled.inputs, (), seed=0, optional=compiled.defaults))
        if output is not None:
            with report.passing("save"):
                header = _save(compiled, output)
    if as_json:
        click.echo(json.dumps(summary(report, compiled), indent=2))
        return
    print_model(compiled)
    several = programs_in(compiled)
    later = None if several > 1 else _compiled_later(compiled, report)
    if later is not None:
        out.print(later)
    else:
        if several > 1:
            out.print(f"It is {several} programs; what a call gives picks one.")
        elif not all(is_static(info.shape) for info in compiled.inputs):
            out.print("Its sizes are open: it runs with any of them.")
        if report.from_cache:
            out.print("From the cache: it was compiled before.")
        print_phases(report)
        if report.tuned:
            print_tuned(report)
        if time_passes:
            print_passes(report)
        if verbose:
            for kernel in report.kernels:
                runs = "1 run" if kernel.runs == 1 else f"{kernel.runs} runs"
                out.print(f"kernel {kernel.name}: {runs}, {kernel.object_bytes} bytes, {kernel.seconds:.3f} s")
    if output is not None:
        out.print(f"Saved as {_saved(compiled, output, header)}.")
        if isinstance(compiled.artifact, Artifact) and not host_supports(compiled.artifact.target):
            out.print(f"It runs on processors of {compiled.artifact.target.name}, not on this one.")
    if check_each_pass:
        out.print("Every pass keeps the numbers, on random inputs.")
    if dump_ir is not None and later is None:
        out.print(f"The IR after every pass is in {dump_ir}; start with {dump_ir / 'index.md'}.")


def _compiled_later(compiled: Model, report: Report) -> str | None:
    """What is compiled when the model is run, and why; None if nothing is."""
    if compiled.values:
        return f"It is compiled for the values of {', '.join(compiled.values)} when it is run, or now with --value."
    if report.served is not None:
        return (
            f"Its sizes are open, and it is compiled once for {report.served}; for others when it is run: {report.each_size}."
        )
    if report.each_size is not None:
        return f"Its sizes are open, and it is compiled for each set of them when it is run: {report.each_size}."
    return None


def _saved(compiled: Model, output: Path, header: Path | None) -> str:
    """The file that was written, and who takes it."""
    if header is not None:
        return f"{output}, and how it is called as {header}"
    return f"{output}" if runs_without_python(compiled) else f"{output}, which only Python runs, not dlc.h"


def _save(compiled: Model, output: Path) -> Path | None:
    """Writes a compiled model; returns the header that stands beside it."""
    if output.suffix in SUFFIXES:
        return write_library(compiled, output)
    compiled.save(output)
    return None


def _print_text(program: Program, target: str, options: Options, form: str | None, output: Path | None) -> None:
    """Prints or writes a program in a form; without one, prints the passes that it would go through."""
    # What comes out of the cache needs no compiler.
    from dlc.backends.registry import backend_of
    from dlc.compiler import emit
    from dlc.compiler.compilation import Compilation
    from dlc.compiler.lowering import plan

    if form is None:
        for stage in plan(Compilation(program, backend_of(target, options.device), options)):
            click.echo(f"{stage.name}: {','.join(map(str, stage.passes))}")
        return
    text = emit(program, form, target, options)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole_text(output, text)
