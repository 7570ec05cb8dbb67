"""`dlc explore`: what the compiler made of a model or a function, as one page to look at."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import Parameter, signature
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import numpy as np
from numpy.typing import NDArray
from rich.markup import escape

from dlc.arrays import TensorInfo
from dlc.cli.derived import DerivingCommand, derived_options
from dlc.cli.given import Shapes, shape_option, value_option
from dlc.cli.run import input_option, seed_option
from dlc.cli.shared import (
    ARTIFACT_SUFFIX,
    json_option,
    make_inputs,
    named_target,
    numerics_option,
    out,
    precision_option,
    read_array,
    read_arrays,
    reports_errors,
    shown_progress,
    target_option,
    threads_option,
    weights_options,
)
from dlc.derived import Derived
from dlc.errors import AbsentError, DlcError, DTypeError, ModelError
from dlc.files.python_files import executed, traced_to
from dlc.files.whole_files import require_writable
from dlc.given_shapes import tensor_shape
from dlc.instrument.report import Progress
from dlc.model_files import explore_file
from dlc.options import Options
from dlc.runtime.models.model import require_fitting
from dlc.target import place_of

if TYPE_CHECKING:
    from dlc.compiler import Program
    from dlc.explore import Page

_PAGE = ".html"
# Derivatives are with respect to arguments by their places.
_BY_PLACE = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
OUTPUT = click.Path(dir_okay=False, path_type=Path)


def _other(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """What to compare with: a file, a function of one, or else a target."""
    if value is None or place_of(value) is not None or Path(value).is_file():
        return value
    if Path(value).suffix:
        raise click.BadParameter(f"{value}: there is no such file")
    try:
        return named_target(context, option, value)
    except click.BadParameter as error:
        raise click.BadParameter(f"there is no file {value}; {error.message}") from error


@click.command("explore", cls=DerivingCommand)
@click.argument("model", metavar="MODEL|FILE.py:FUNCTION")
@click.option("-o", "--output", type=OUTPUT, help="Write the page here; by default NAME.html in this folder.")
@click.option("--serve", is_flag=True, help="Serve the page on this machine and open it, instead of writing it.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --serve: the port; by default any that is free.")
@click.option(
    "--against",
    callback=_other,
    metavar="PAGE.html|MODEL|FILE.py:FUNCTION|TARGET",
    help="Show it beside this: a page from before a change, another model or function, or MODEL itself for another target.",
)
@click.option("--no-run", is_flag=True, help="Do not run the model: the page has no times.")
@input_option
@target_option
@shape_option
@value_option
@derived_options
@seed_option
@threads_option
@numerics_option
@precision_option
@weights_options
@json_option
@reports_errors
def explore_command(
    model: str,
    output: Path | None,
    serve: bool,
    port: int,
    against: str | None,
    no_run: bool,
    inputs: tuple[str, ...],
    target: str,
    shapes: Shapes,
    values: dict[str, Path],
    seed: int,
    num_threads: int | None,
    numerics: str,
    precision: str,
    weights: str,
    group: int,
    derived: Derived | None,
    as_json: bool,
) -> None:
    """Writes a page that shows what the compiler made of a model.

    The model is compiled and run. The page is one file: the graph with its kernels, every pass with the text before and after
    it, each kernel's share of what the machine can do, memory, and time. MODEL is an ONNX or TFLite file, a module of a dump
    (.mlir), or a function of a Python file: its arguments are float32 arrays of the shapes that --shape says, or what --input
    gives. With --against it may be a page that was written before, too. --json prints what the page says, without its texts.
    """
    if serve and as_json:
        raise click.UsageError("--json says what is in a page that is written; --serve writes none")
    options = Options.of(num_threads=num_threads, numerics=numerics, precision=precision, weights=weights, group=group)
    path = _path(model)
    if (values or derived is not None) and any(place_of(given) is not None for given in (model, against or "")):
        raise click.UsageError(
            "--value, and derivatives and steps of training, are of ONNX models; a function has its constants, dlc.grad and "
            "dlc.optim in it"
        )
    known = {name: read_array(file) for name, file in values.items()}
    if output is None:
        output = Path(f"{path.stem if (function := place_of(model)) is None else function[1]}.html")
        # What was compared stays as it was.
        output = output if output != path else Path(f"{path.stem}-compared.html")
    if not serve:
        require_writable(output)
    with shown_progress() as progress:
        explored = _Explored(shapes, known, inputs, seed, options, no_run, progress)
        if path.suffix == _PAGE and against is None:
            raise click.UsageError(f"{path} is a page already; open it, or see it beside another with --against")
        page = explored.page(model, target, derived)
        if against is not None:
            page = page.against(explored.other(model, target, derived, against))
    if serve:
        _serve(page.html, port)
        return
    page.save(output)
    if as_json:
        click.echo(json.dumps(page.as_dict(), indent=1))
    else:
        out.print(f"Saved as {escape(str(output))}.")


def _path(model: str) -> Path:
    """The file that is meant; a usage error if it is none that is explored."""
    function = place_of(model)
    path = Path(model if function is None else function[0])
    if not path.is_file():
        raise click.UsageError(f"{path}: there is no such file")
    if path.suffix == ARTIFACT_SUFFIX:
        raise click.UsageError(f"{path} is compiled already; a page is made of the ONNX model")
    if function is None and path.suffix == ".py":
        raise click.UsageError(f"{path}: say which function of it: {path}:FUNCTION")
    return path


@dataclass(frozen=True)
class _Explored:
    """How pages are made: what options say of shapes, inputs and all else that two pages have in common."""

    shapes: Shapes
    values: dict[str, NDArray[Any]]
    inputs: tuple[str, ...]
    seed: int
    options: Options
    no_run: bool
    progress: Progress | None

    def page(self, model: str, target: str, derived: Derived | None) -> Page:
        path, function = _path(model), place_of(model)
        if path.suffix == _PAGE:
            # What is compiled needs no explorer.
            from dlc.explore import Page

            return Page.read(path)
        if function is None:
            given = None if self.no_run else partial(_given, self.inputs, self.seed)
            shapes, options = self.shapes, self.options
            return explore_file(
                path, target, shapes, options, values=self.values, derived=derived, inputs=given, progress=self.progress
            )
        arguments = _arguments(self.inputs, self.shapes, self.seed)
        return _function_page(*function, arguments, self.shapes, target, self.options, self.no_run)

    def other(self, model: str, target: str, derived: Derived | None, against: str) -> Page:
        """The page to compare with; what is no file is a target for which MODEL is compiled once more."""
        if place_of(against) is not None or Path(against).is_file():
            return self.page(against, target, None)
        return self.page(model, against, derived)


def _given(inputs: tuple[str, ...], seed: int, program: Program) -> dict[str, NDArray[Any]]:
    """The inputs of a program, as options say; sizes that they leave open are those that plans are made for."""
    arrays = make_inputs(program.inputs, inputs, seed, program.defaults, program.planned_sizes)
    given = [info for info in program.inputs if info.name in arrays]
    require_fitting(program.name, given, [arrays[info.name] for info in given])
    return arrays


def _arguments(inputs: tuple[str, ...], shapes: Shapes, seed: int) -> dict[str, NDArray[Any]]:
    """The arguments of a function: arrays of float32 of known shapes, or out of files."""
    files: dict[str, NDArray[Any]] = {}
    for text in inputs:
        name, equals, file = text.partition("=")
        if Path(text).is_dir():
            files |= {path.stem: read_array(path) for path in sorted(Path(text).glob("*.npy"))}
        elif not equals and Path(text).suffix == ".npz":
            files |= read_arrays(Path(text))
        elif not equals:
            raise click.UsageError(f"--input {text}: say which argument of the function it is: --input NAME=FILE.npy")
        elif file != "random":
            files[name] = read_array(Path(file))
    plain = {name: tensor_shape(name, shape) for name, shape in shapes.items()}
    if unknown := [name for name, shape in plain.items() if not all(isinstance(size, int) for size in shape)]:
        raise click.UsageError(f"--shape {unknown[0]}: a function is compiled for arrays: give all sizes as numbers")
    known = {name: tuple(int(cast("int", size)) for size in shape) for name, shape in plain.items()}
    infos = tuple(TensorInfo(name, shape, np.dtype(np.float32)) for name, shape in known.items())
    return {**make_inputs(infos, (), seed), **files}


def _function_page(
    file: str,
    name: str,
    arguments: Mapping[str, NDArray[Any]],
    shapes: Collection[str],
    target: str,
    options: Options,
    no_run: bool,
) -> Page:
    """The page of a function, of arguments of which those that have `shapes` were drawn at random."""
    # Of dlc's commands only this one takes functions.
    from dlc.explore import explore
    from dlc.just_in_time import JitFunction, jit

    module = executed(file)
    found = getattr(module, name, None)
    if not callable(found):
        raise ModelError(f"{file}: it has no function {name}")
    function = found if isinstance(found, JitFunction) else jit(found)
    parameters = signature(found).parameters
    if not any(k.kind is k.VAR_KEYWORD for k in parameters.values()):
        unknown = [argument for argument in arguments if argument not in parameters]
        if unknown:
            raise click.UsageError(f"{name} takes no {', '.join(unknown)}; it takes {', '.join(parameters) or 'nothing'}")
    missing = [p for p, k in parameters.items() if k.default is k.empty and p not in arguments]
    if missing:
        too = " too" if arguments else ""
        raise click.UsageError(f"{name} takes {', '.join(missing)}{too}: say --shape {missing[0]}=SIZE,… or --input")
    placed = list(takewhile(arguments.__contains__, (p for p, k in parameters.items() if k.kind in _BY_PLACE)))
    named = {name: array for name, array in arguments.items() if name not in placed}
    try:
        given = [arguments[name] for name in placed]
        lowered = function.lower(*given, **named)
    except Exception as error:
        is_absent = isinstance(error, AbsentError)
        if isinstance(error, DTypeError) and (drawn := [k for k in shapes if k in arguments]):
            advice = f"--shape makes arrays of float32; others come from files: --input {drawn[0]}={drawn[0]}.npy"
            raise DTypeError(f"{error}; {advice}") from error
        if isinstance(error, DlcError) and not is_absent:
            raise
        line, is_ours = traced_to(error, module)
        if line is not None and (is_absent or not is_ours):
            what = str(error) if is_absent else f"{type(error).__name__}: {error}"
            raise ModelError(f"{file}:{line}: {what}") from error
        if line is not None:
            error.add_note(f"met at {file}:{line}")
        raise
    return explore(lowered.program, target, options, inputs=None if no_run else function.arrays(*given, **named))


def _serve(html: str, port: int) -> None:
    """Serves a page until Ctrl-C."""
    content = html.encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] in ("/", "/index.html")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content) if found else 0))
            self.end_headers()
            if found:
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    try:
        served = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise DlcError(f"port {port} of this machine: {error.strerror}; choose another with --port") from error
    with served as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        out.print(f"The page is at {address} until Ctrl-C.")
        webbrowser.open(address)
        server.serve_forever()
