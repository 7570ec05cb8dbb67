"""`dlc compile` and `compile-model`: compile a model to native code, or print its IR at the end of a stage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.markup import escape

from dlc.arrays import ShapeDtype, named_dtype
from dlc.cli.common import (
    ARTIFACT_SUFFIX,
    examples,
    json_option,
    options_on_command_line,
    progress_display,
    reports_errors,
    show_log,
    target_option,
)
from dlc.cli.compile_options import COMPILATION_PARAMETERS, IR_OPTIONS, NUMERIC_OPTIONS, PLAN_OPTIONS, compile_options
from dlc.cli.compile_variants import compile_variants, count_programs
from dlc.cli.console import out
from dlc.cli.input_arrays import make_inputs, read_array
from dlc.cli.python_functions import read_function
from dlc.cli.shape_options import Shapes, each_shape_option, each_value_option
from dlc.cli.tables import print_model, print_passes, print_phases, print_tuned, summary
from dlc.cli.transform_options import TransformCommand, transform_options
from dlc.deploy import SUFFIXES, runs_without_python, save_model
from dlc.files.atomic_writes import atomic_write_text, require_writable
from dlc.instrument.report import ProgressEvent, Report
from dlc.models.model_files import compile_file, import_program
from dlc.options import Options
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.model import Model
from dlc.shapes.dims import is_static
from dlc.shapes.shape_specs import tensor_shape
from dlc.target import custom_target_location, host_supports
from dlc.training.model_transforms import ModelTransform

if TYPE_CHECKING:
    from dlc.compiler import Program

GGUF_SUFFIX = ".gguf"
# Parameters of the command that do not apply to language models.
_NOT_FOR_LANGUAGE_MODELS = (
    *("shapes", "values", "form", "print_pipeline", "time_passes"),
    *(name for name in COMPILATION_PARAMETERS if name != "target"),
)
OUTPUT = click.Path(dir_okay=False, path_type=Path)


class _ModelOrFunction(click.Path):
    """The path of a model, or FILE.py:FUNCTION."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        function = custom_target_location(str(value))
        super().convert(value if function is None else function[0], param, ctx)
        return Path(value)


def _read_dtypes(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, np.dtype[Any]]:
    dtypes: dict[str, np.dtype[Any]] = {}
    for value in values:
        name, _, dtype = value.rpartition("=")
        try:
            dtypes[name] = named_dtype(dtype)
        except (ValueError, TypeError):
            raise click.BadParameter(f"{value!r}: expected NAME=DTYPE, such as x=float64") from None
    return dtypes


@click.command(
    "compile",
    cls=TransformCommand,
    epilog=examples(
        "dlc compile model.onnx -o model.dlc",
        "dlc compile model.onnx --shape x=N:1..32,3,224,224 -o model.so",
        "dlc compile model.onnx --emit loops                    IR at the end of a stage",
        "dlc compile model.onnx --vjp loss --wrt 'layer4.*' -o gradient.dlc",
        "dlc compile sim.py:gradient --shape x=8 -o gradient.so   a function of a Python file",
    ),
)
@click.argument("model", type=_ModelOrFunction())
@target_option
@each_shape_option
@each_value_option
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    callback=_read_dtypes,
    metavar="NAME=DTYPE",
    help="The dtype of a Python function's argument, such as x=float64; repeatable. Default: float32.",
)
@transform_options
@click.option(
    "--emit",
    "form",
    metavar="FORM",
    help="Print the IR at the end of a stage (dl, fusion, linalg, tiling, loops, host) or the code of the kernels "
    "(llvm, asm, opencl) instead of compiling.",
)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    help="Write the compiled model here: a .dlc file, or a C library or object file (.so, .o, .a) "
    "with its header; with --emit, the text.",
)
@click.option("--print-pipeline", is_flag=True, help="Print the passes by stage without running them.")
@click.option("--time-passes", is_flag=True, help="Print the time of each pass; bypasses the cache.")
@json_option
@click.option("-v", "--verbose", is_flag=True, help="List the kernels and log cache lookups.")
@compile_options("num_threads", "inter_op", *NUMERIC_OPTIONS, "tune", "cache", *IR_OPTIONS, *PLAN_OPTIONS)
@reports_errors
def compile_command(
    model: Path,
    target: str,
    shapes: list[Shapes],
    values: list[dict[str, Path]],
    dtypes: dict[str, np.dtype[Any]],
    form: str | None,
    output: Path | None,
    print_pipeline: bool,
    time_passes: bool,
    as_json: bool,
    verbose: bool,
    transform: ModelTransform | None,
    compile_settings: dict[str, Any],
) -> None:
    """Compiles a model to native code (ahead-of-time compilation).

    MODEL is an ONNX or TFLite file, a PyTorch program saved with torch.export.save (.pt2), an MLIR module (.mlir): StableHLO
    or a dump, a language model (.gguf), or a function of a Python file (sim.py:step). Arguments of a function have the shapes
    and dtypes in --shape and --dtype, or default values. Run the compiled model with `dlc run`, with `dlc.load` in Python, or
    with dlc.h in C (`dlc header`).

    Inputs with symbolic dimensions compile to one dynamic-shape program where possible; otherwise the model is specialized
    per shape at run time. --shape sets static or bounded shapes; repeat it for one input to compile one program per shape.

    An ONNX model can also be compiled to a derivative (--vjp, --jvp, --hvp, with respect to --wrt) or to a training step
    (--train-step with --loss). The weights of such a model are optional inputs.
    """
    if output is not None and form is None and output.suffix not in (ARTIFACT_SUFFIX, *SUFFIXES):
        raise click.UsageError(
            f"-o {output}: expected a name that ends in {ARTIFACT_SUFFIX} for a compiled model, or in "
            f"{', '.join(SUFFIXES)} for a C library or object; to write IR or code as text, add --emit"
        )
    # --time-passes needs a compilation, so the cache is bypassed.
    options = Options.of(**compile_settings | ({"cache": False} if time_passes else {}))
    if verbose:
        show_log()
    if output is not None:
        require_writable(output)
    header: Path | None = None
    needs_one_program = print_pipeline or form is not None or options.check_each_pass or options.dump_ir is not None
    if len(shapes) * len(values) > 1 and needs_one_program:
        raise click.UsageError(
            "--print-pipeline, --emit, --check-each-pass and --dump-ir take one program; give one --shape and --value per input"
        )
    if model.suffix == GGUF_SUFFIX:
        if output is None or output.suffix != ARTIFACT_SUFFIX:
            raise click.UsageError(f"a language model is compiled to a {ARTIFACT_SUFFIX} file: add -o NAME{ARTIFACT_SUFFIX}")
        if unsupported := options_on_command_line(_NOT_FOR_LANGUAGE_MODELS):
            raise click.UsageError(f"a language model takes no {' and no '.join(unsupported)}; `dlc generate` runs it")
        _compile_language_model(model, target, options.num_threads, options.cache, output)
        return
    function = custom_target_location(str(model))
    if function is None and model.suffix == ".py":
        raise click.UsageError(f"{model}: name a function of the file: {model}:FUNCTION")
    if dtypes and function is None:
        raise click.UsageError("--dtype applies to functions of Python files; the inputs of a model have dtypes")
    if function is not None and (transform is not None or any(values) or len(shapes) > 1):
        raise click.UsageError(
            "a Python function takes no --value, no derivatives or training steps, and one --shape per argument; "
            "use constants, dlc.grad and dlc.optim in the file"
        )
    report, constants = Report(), [{name: read_array(file) for name, file in files.items()} for files in values]
    with progress_display() as progress:
        if print_pipeline or form is not None:
            program = (
                import_program(model, shapes[0], constants[0], transform)
                if function is None
                else _trace_function(*function, shapes[0], dtypes)
            )
            _print_text(program, target, options, form, output)
            return

        def compile_one(input_shapes: Shapes, input_values: Mapping[str, NDArray[Any]]) -> Model:
            if function is not None:
                # Imported here because cached models load without the compiler.
                from dlc.compiler import compile

                return compile(_trace_function(*function, input_shapes, dtypes), target, options, report=report)
            return compile_file(
                model, target, input_shapes, options, values=input_values, transform=transform, report=report, progress=progress
            )

        compiled = compile_variants(compile_one, shapes, constants)
        if options.check_each_pass:
            # The passes are checked on the inputs of this first call.
            compiled(make_inputs(compiled.inputs, (), seed=0, optional=compiled.defaults))
        if output is not None:
            with report.timed_total("save"):
                header = save_model(compiled, output)
    if as_json:
        click.echo(json.dumps(summary(report, compiled), indent=2))
        return
    print_model(compiled)
    num_programs = count_programs(compiled)
    deferral = None if num_programs > 1 else _deferred_compilation(compiled, report)
    if deferral is not None:
        out.print(deferral)
    else:
        if num_programs > 1:
            out.print(f"Compiled to {num_programs} programs; the inputs of a call select one.")
        elif not all(is_static(info.shape) for info in compiled.inputs):
            out.print("Compiled to one dynamic-shape program for all sizes.")
        if report.from_cache:
            out.print("Loaded from the cache.")
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
        out.print(f"Saved as {_saved_message(compiled, output, header)}.")
        if isinstance(compiled.artifact, Artifact) and not host_supports(compiled.artifact.target):
            out.print(f"It needs a processor of {compiled.artifact.target.name} and does not run on this machine.")
    if options.check_each_pass:
        out.print("Every pass preserves the results on random inputs.")
    if options.dump_ir is not None and deferral is None:
        out.print(f"Wrote the IR after every pass to {options.dump_ir}; start with {options.dump_ir / 'index.md'}.")


def _deferred_compilation(compiled: Model, report: Report) -> str | None:
    """Describe the run-time specializations and their reasons in a sentence; None if there are none."""
    if compiled.values:
        return (
            f"It is specialized at run time for the values of {', '.join(compiled.values)}; "
            "give them with --value to compile it now."
        )
    if report.dynamic_domain is not None:
        return (
            f"Compiled to one dynamic-shape program for {report.dynamic_domain}; other sizes are specialized at run time: "
            f"{report.specialization_reason}."
        )
    if report.specialization_reason is not None:
        return f"Its shapes are dynamic and are specialized at run time: {report.specialization_reason}."
    return None


def _saved_message(compiled: Model, output: Path, header: Path | None) -> str:
    """Return a description of the written file and of what can load it."""
    if header is not None:
        return f"{output}, with the header {header}"
    return f"{output}" if runs_without_python(compiled) else f"{output}, which needs Python (dlc.load); dlc.h cannot run it"


def _print_text(program: Program, target: str, options: Options, form: str | None, output: Path | None) -> None:
    """Print or write a program in a form such as `loops` or `asm`; without a form print the passes that would run."""
    # Imported here because loading a model from the cache does not need the compiler.
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
        atomic_write_text(output, text)


def _trace_function(file: str, name: str, shapes: Shapes, dtypes: Mapping[str, np.dtype[Any]]) -> Program:
    """Trace a function of a Python file for arguments of these shapes and dtypes."""
    function = read_function(file, name)
    shapes_by_name = {argument: tensor_shape(argument, shape) for argument, shape in shapes.items()}
    if dynamic := [k for k, shape in shapes_by_name.items() if not is_static(shape)]:
        raise click.UsageError(f"--shape {dynamic[0]}: a function needs static shapes: give every size as an integer")
    if unknown := [k for k in dtypes if k not in shapes_by_name]:
        raise click.UsageError(f"--dtype {unknown[0]}: add --shape {unknown[0]}=SIZE,…; an empty list of sizes is a scalar")
    arguments = {
        argument: ShapeDtype([int(str(size)) for size in shape], dtypes.get(argument, np.float32))
        for argument, shape in shapes_by_name.items()
    }
    advice = "arguments are float32 by default: --dtype NAME=DTYPE"
    return function.lower(*function.bind(arguments), advice).program


def _compile_language_model(model: Path, target: str, num_threads: int | None, cache: bool, output: Path) -> None:
    """Write the programs of a language model: one for a token, others for the tokens of a prompt."""
    # Imported here because other models do not need the families.
    from dlc.language_models.language_model import LanguageModel

    with progress_display() as progress:

        def report(phase: str) -> None:
            if progress is not None:
                progress(ProgressEvent(phase))

        compiled = LanguageModel.load(model, target=target, num_threads=num_threads, cache=cache, progress=report)
        compiled.model.save(output)
    out.print(f"Saved as {escape(str(output))}; its context has {compiled.context} tokens.")
