"""`dlc explore`: write an HTML page that shows how a model or a Python function was compiled."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import numpy as np
from numpy.typing import NDArray
from rich.markup import escape

from dlc.arrays import TensorInfo
from dlc.cli.common import ARTIFACT_SUFFIX, examples, json_option, named_target, progress_display, reports_errors, target_option
from dlc.cli.compile_options import NUMERIC_OPTIONS, compile_options
from dlc.cli.console import out
from dlc.cli.input_arrays import make_inputs, read_array, read_arrays
from dlc.cli.python_functions import read_function
from dlc.cli.run import input_option, seed_option
from dlc.cli.shape_options import Shapes, shape_option, value_option
from dlc.cli.transform_options import TransformCommand, transform_options
from dlc.errors import DlcError
from dlc.files.atomic_writes import require_writable
from dlc.instrument.report import Progress
from dlc.models.model_files import explore_file
from dlc.options import Options
from dlc.shapes.input_sizes import require_matching_inputs
from dlc.shapes.shape_specs import tensor_shape
from dlc.target import custom_target_location
from dlc.training.model_transforms import ModelTransform

if TYPE_CHECKING:
    from dlc.compiler import Program
    from dlc.explore import Page

_PAGE_SUFFIX = ".html"
OUTPUT = click.Path(dir_okay=False, path_type=Path)


def _parse_against(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Parse `--against`: a file, a function of a file, or otherwise a target."""
    if value is None or custom_target_location(value) is not None or Path(value).is_file():
        return value
    if Path(value).suffix:
        raise click.BadParameter(f"{value}: no such file")
    try:
        return named_target(context, option, value)
    except click.BadParameter as error:
        raise click.BadParameter(f"{value}: no such file, and no target: {error.message}") from error


@click.command(
    "explore",
    cls=TransformCommand,
    epilog=examples(
        "dlc explore model.onnx --serve",
        "dlc explore net.py:forward --shape x=8,64",
        "dlc explore model.onnx --against opencl          comparison of two targets",
    ),
)
@click.argument("model", metavar="MODEL|FILE.py:FUNCTION")
@click.option("-o", "--output", type=OUTPUT, help="Write the page here; default: NAME.html in the current folder.")
@click.option("--serve", is_flag=True, help="Serve the page on localhost and open the browser instead of writing a file.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --serve: the port; default: any free port.")
@click.option(
    "--against",
    callback=_parse_against,
    metavar="PAGE.html|MODEL|FILE.py:FUNCTION|TARGET",
    help="Compare with an earlier page, another model or function, or MODEL compiled for another target.",
)
@click.option("--no-run", is_flag=True, help="Do not run the model; the page then has no run times.")
@input_option
@target_option
@shape_option
@value_option
@transform_options
@seed_option
@compile_options("num_threads", *NUMERIC_OPTIONS)
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
    transform: ModelTransform | None,
    as_json: bool,
    compile_settings: dict[str, Any],
) -> None:
    """Writes an HTML page: graph, passes, kernels, memory, time.

    The model is compiled and run. The page is one file without network access: the graph after kernel fusion, the IR before
    and after every pass, a roofline profile of the kernels, the memory arena, and a timeline.

    MODEL is an ONNX or TFLite file, a dumped module (.mlir), or a function of a Python file, whose arguments are random
    float32 arrays of the shapes in --shape, or arrays from --input. With --against it may also be a page written earlier.
    --json prints the content of the page without the IR.
    """
    if serve and as_json:
        raise click.UsageError("--serve and --json exclude each other: --serve writes no page")
    options = Options.of(**compile_settings)
    path = _model_path(model)
    if (values or transform is not None) and any(custom_target_location(name) is not None for name in (model, against or "")):
        raise click.UsageError(
            "--value, derivatives and training steps apply to ONNX models only; in a Python function use constants, dlc.grad "
            "and dlc.optim"
        )
    constants = {name: read_array(file) for name, file in values.items()}
    if output is None:
        output = Path(f"{path.stem if (function := custom_target_location(model)) is None else function[1]}.html")
        # The compared page is not overwritten.
        output = output if output != path else Path(f"{path.stem}-compared.html")
    if not serve:
        require_writable(output)
    with progress_display() as progress:
        builder = _PageBuilder(shapes, constants, inputs, seed, options, no_run, progress)
        if path.suffix == _PAGE_SUFFIX and against is None:
            raise click.UsageError(f"{path} is already a page; open it in a browser, or compare it with another: --against")
        page = builder.page(model, target, transform)
        if against is not None:
            page = page.against(builder.page_to_compare(model, target, transform, against))
    if serve:
        _serve(page.html, port)
        return
    page.save(output)
    if as_json:
        click.echo(json.dumps(page.as_dict(), indent=1))
    else:
        out.print(f"Saved as {escape(str(output))}.")


def _model_path(model: str) -> Path:
    """Return the file that MODEL names. Raises UsageError for one that cannot be explored."""
    function = custom_target_location(model)
    path = Path(model if function is None else function[0])
    if not path.is_file():
        raise click.UsageError(f"{path}: no such file")
    if path.suffix == ARTIFACT_SUFFIX:
        raise click.UsageError(f"{path} is already compiled; explore the ONNX model")
    if function is None and path.suffix == ".py":
        raise click.UsageError(f"{path}: name a function of the file: {path}:FUNCTION")
    return path


@dataclass(frozen=True)
class _PageBuilder:
    """Builds pages from the options that both pages of a comparison share."""

    shapes: Shapes
    values: dict[str, NDArray[Any]]
    inputs: tuple[str, ...]
    seed: int
    options: Options
    no_run: bool
    progress: Progress | None

    def page(self, model: str, target: str, transform: ModelTransform | None) -> Page:
        path, function = _model_path(model), custom_target_location(model)
        if path.suffix == _PAGE_SUFFIX:
            # Imported here because compiled models run without the explorer.
            from dlc.explore import Page

            return Page.read(path)
        if function is None:
            input_factory = None if self.no_run else partial(_program_inputs, self.inputs, self.seed)
            shapes, options = self.shapes, self.options
            return explore_file(
                path,
                target,
                shapes,
                options,
                values=self.values,
                transform=transform,
                inputs=input_factory,
                progress=self.progress,
            )
        arguments = _function_arguments(self.inputs, self.shapes, self.seed)
        return _function_page(*function, arguments, self.shapes, target, self.options, self.no_run)

    def page_to_compare(self, model: str, target: str, transform: ModelTransform | None, against: str) -> Page:
        """Build the page to compare with; a value that is not a file is a target for which MODEL is compiled again."""
        if custom_target_location(against) is not None or Path(against).is_file():
            return self.page(against, target, None)
        return self.page(model, against, transform)


def _program_inputs(inputs: tuple[str, ...], seed: int, program: Program) -> dict[str, NDArray[Any]]:
    """Return the selected inputs of a program; symbolic dimensions default to the sizes used for tile planning."""
    arrays = make_inputs(program.inputs, inputs, seed, program.defaults, program.representative_sizes)
    input_infos = [info for info in program.inputs if info.name in arrays]
    require_matching_inputs(program.name, input_infos, [arrays[info.name] for info in input_infos])
    return arrays


def _function_arguments(inputs: tuple[str, ...], shapes: Shapes, seed: int) -> dict[str, NDArray[Any]]:
    """Return the arguments of a function: random float32 arrays of static shapes, or arrays from files."""
    files: dict[str, NDArray[Any]] = {}
    for text in inputs:
        name, equals, file = text.partition("=")
        if Path(text).is_dir():
            files |= {path.stem: read_array(path) for path in sorted(Path(text).glob("*.npy"))}
        elif not equals and Path(text).suffix == ".npz":
            files |= read_arrays(Path(text))
        elif not equals:
            raise click.UsageError(f"--input {text}: name the argument of the function: --input NAME=FILE.npy")
        elif file != "random":
            files[name] = read_array(Path(file))
    tensor_shapes = {name: tensor_shape(name, shape) for name, shape in shapes.items()}
    if unknown := [name for name, shape in tensor_shapes.items() if not all(isinstance(size, int) for size in shape)]:
        raise click.UsageError(f"--shape {unknown[0]}: a function needs static shapes: give every size as an integer")
    shapes_by_name = {name: tuple(int(cast("int", size)) for size in shape) for name, shape in tensor_shapes.items()}
    infos = tuple(TensorInfo(name, shape, np.dtype(np.float32)) for name, shape in shapes_by_name.items())
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
    """Build the page of a Python function; the arguments listed in `shapes` are random arrays."""
    # Imported here because compiled models run without the explorer.
    from dlc.explore import explore

    function = read_function(file, name)
    positional, keywords = function.bind(arguments)
    advice = ""
    if random_arguments := [k for k in shapes if k in arguments]:
        file_option = f"--input {random_arguments[0]}={random_arguments[0]}.npy"
        advice = f"--shape creates float32 arrays; for other dtypes use a file: {file_option}"
    lowered = function.lower(positional, keywords, advice)
    inputs = None if no_run else function.function.arrays(*positional, **keywords)
    return explore(lowered.program, target, options, inputs=inputs)


def _serve(html: str, port: int) -> None:
    """Serve a page until Ctrl-C."""
    content = html.encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_index = self.path.partition("?")[0] in ("/", "/index.html")
            self.send_response(200 if is_index else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content) if is_index else 0))
            self.end_headers()
            if is_index:
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    try:
        http_server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise DlcError(f"port {port}: {error.strerror}; choose another port with --port") from error
    with http_server as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        out.print(f"Serving the page at {address}; press Ctrl-C to stop.")
        webbrowser.open(address)
        server.serve_forever()
