"""`dlc train`: train the weights of an ONNX model on examples."""

from __future__ import annotations

import json
import signal
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dlc.arrays import read_npz
from dlc.cli.common import examples, json_option, model_argument, progress_display, reports_errors, target_option
from dlc.cli.compile_options import compile_options
from dlc.cli.console import err, out
from dlc.cli.mesh_options import InputSpec, input_specs, mesh_options
from dlc.cli.transform_options import (
    decay_option,
    momentum_option,
    of_option,
    rate_option,
    train_step_from_options,
    wrt_option,
)
from dlc.compiler.sharding import stored_shardings
from dlc.distributed.mesh_model import compile_on_mesh
from dlc.errors import DlcError, ModelError, ShapeError
from dlc.files.atomic_writes import atomic_write, require_writable
from dlc.frontend.onnx.graph import ModelFile, load
from dlc.frontend.onnx.tensor_names import class_count
from dlc.models.model_files import compile_file, import_program
from dlc.options import Options
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.start import is_first_rank, job_fails_on_error
from dlc.runtime.models.model import Model
from dlc.training.data import Examples
from dlc.training.model_names import ModelNames
from dlc.training.model_transforms import LOSSES, OPTIMIZERS, Loss, Optimizer, TrainStep
from dlc.training.schedules import SCHEDULES, Schedule, learning_rates
from dlc.training.training_loop import StepResult, steps_per_epoch, train
from dlc.training.training_step import TARGETS, trained_output
from dlc.training.updated_model import write_updated_model

FILE = click.Path(dir_okay=False, path_type=Path)
# For models with a symbolic batch dimension.
_DEFAULT_BATCH_SIZE = 32


@click.command(
    "train",
    epilog=examples(
        "dlc train model.onnx --data examples.npz --loss cross_entropy -o tuned.onnx",
        "dlc train model.onnx --data examples.npz --loss mse --wrt 'head.*' -o tuned.onnx",
    ),
)
@model_argument
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE.npz|FOLDER",
    help="Training data: one array per input, and `labels` (cross_entropy) or `targets` (mse), with examples along axis 0; "
    "or a folder of NAME.npy.",
)
@click.option("-o", "--output", required=True, type=FILE, help="Write the trained ONNX model here after each epoch.")
@click.option("--loss", type=click.Choice(LOSSES), required=True, help="The loss to minimize.")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="adamw", show_default=True, help="The optimizer.")
@click.option("--epochs", type=click.IntRange(1), default=1, show_default=True, help="Number of passes over the examples.")
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    help=f"Examples per training step; default: the model's batch size, or {_DEFAULT_BATCH_SIZE}.",
)
@wrt_option
@of_option
@rate_option
@click.option(
    "--schedule",
    type=click.Choice(SCHEDULES),
    default="constant",
    show_default=True,
    help="Learning rate schedule; linear and cosine decay to 0 at the last step.",
)
@click.option("--warmup", type=click.IntRange(0), default=0, help="With --schedule cosine: warm-up steps from rate 0.")
@momentum_option
@decay_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the order of the examples.")
@click.option(
    "--state", type=FILE, metavar="FILE.npz", help="The optimizer's state: read if the file exists, written with the model."
)
@mesh_options(required=False)
@target_option
@compile_options("num_threads", "cache")
@json_option
@reports_errors
@job_fails_on_error()
def train_command(
    model: Path,
    data: Path,
    output: Path,
    loss: Loss,
    optimizer: Optimizer,
    epochs: int,
    batch_size: int | None,
    wrt: tuple[str, ...],
    of: str | None,
    learning_rate: float | None,
    schedule: Schedule,
    warmup: int,
    momentum: float | None,
    weight_decay: float | None,
    seed: int,
    state: Path | None,
    mesh: Mesh | None,
    specs: Mapping[str, InputSpec],
    target: str,
    as_json: bool,
    compile_settings: dict[str, Any],
) -> None:
    """Trains the weights of an ONNX model on examples.

    Only the weights in the file change. Each epoch shuffles the examples and drops the last incomplete batch. The model is
    trained as the file computes it: BatchNorm keeps its statistics, and there is no dropout unless the file has it.

    Ctrl-C saves the weights after the last step. With --state a later run continues from there:
    `dlc train TRAINED.onnx --state FILE.npz …`. A --schedule covers the steps of one run.

    With --mesh, the ranks of `mpiexec -n RANKS dlc train …` share the work of each step; rank 0 prints and writes.
    """
    step = train_step_from_options(optimizer, loss, of, wrt, learning_rate, momentum, weight_decay)
    for path in (output, *([state] if state is not None else [])):
        require_writable(path)
    file = load(model)
    names = ModelNames.of(file)
    array_names = [info.name for info in names.inputs] + [TARGETS[loss]]
    examples = Examples.read(data, array_names)
    examples_per_step = _choose_batch_size(names, batch_size, len(examples))
    try:
        rates = learning_rates(schedule, step.rate, epochs * steps_per_epoch(examples, examples_per_step), warmup)
    except DlcError as error:
        raise click.UsageError(str(error)) from error
    if loss == "cross_entropy":
        _require_labels(examples, class_count(file, trained_output(names, step)))
    shapes = {info.name: (examples_per_step, *examples.arrays[info.name].shape[1:]) for info in names.inputs}
    options = Options.of(**compile_settings)
    with progress_display() as progress:
        if mesh is None:
            compiled = compile_file(model, target, shapes, options, transform=step, progress=progress)
        else:
            program = import_program(file, shapes, None, step)
            annotations = input_specs(mesh, specs, program.inputs, program.defaults, stored_shardings(program.module)[0])
            compiled = compile_on_mesh(program, mesh, annotations, target, options, progress)
        examples.require_matching_inputs([info for info in compiled.inputs if info.name not in compiled.defaults])
        initial_state = _read_state(state, compiled) if state is not None and state.exists() else {}
    _TrainingRun(file, step, compiled, examples, examples_per_step, epochs, output, state, as_json).run(
        initial_state, rates, seed
    )


def _choose_batch_size(names: ModelNames, requested_size: int | None, num_examples: int) -> int:
    """Return the number of examples per step."""
    static_batch_sizes = {info.shape[0] for info in names.inputs if info.shape and isinstance(info.shape[0], int)}
    if len(static_batch_sizes) > 1:
        raise ShapeError(
            f"{names.model}: expected inputs of one batch size along axis 0, got {', '.join(map(str, names.inputs))}"
        )
    static_batch_size = next(iter(static_batch_sizes), None)
    if static_batch_size is not None and requested_size is not None and requested_size != static_batch_size:
        raise ShapeError(
            f"{names.model}: --batch-size {requested_size}: the model has the batch size {static_batch_size}; "
            "export it with a dynamic batch"
        )
    size = int(static_batch_size) if static_batch_size is not None else requested_size or min(_DEFAULT_BATCH_SIZE, num_examples)
    if size > num_examples:
        raise ShapeError(f"{names.model}: expected at least {size} examples, one batch; the data has {num_examples}")
    return size


def _require_labels(examples: Examples, classes: int | None) -> None:
    labels = examples.arrays[TARGETS["cross_entropy"]]
    if labels.dtype.kind not in "iu":
        return  # a wrong dtype, which `require_matching_inputs` reports
    if labels.min() < 0 or (classes is not None and labels.max() >= classes):
        label_range = f"0 to {classes - 1}" if classes is not None else "0 or more"
        raise ModelError(f"{examples.source}: labels: expected classes {label_range}, got {labels.min()} to {labels.max()}")


def _read_state(path: Path, step: Model) -> dict[str, NDArray[Any]]:
    try:
        arrays = read_npz(path)
    except ValueError as error:
        raise ModelError(f"{path} is not an optimizer state written by --state: {error}") from error
    state_infos = {info.name: info for info in step.inputs if info.name in step.defaults}
    if unknown := [name for name, a in arrays.items() if name not in state_infos or state_infos[name].shape != a.shape]:
        raise ModelError(f"{path} is the state of another model or optimizer: unexpected {', '.join(unknown[:4])}")
    return arrays


class _TrainingRun:
    """The state of a training run: the results so far, and the files to write."""

    def __init__(
        self,
        file: ModelFile,
        step: TrainStep,
        compiled: Model,
        examples: Examples,
        batch: int,
        epochs: int,
        output: Path,
        state: Path | None,
        as_json: bool,
    ) -> None:
        self.file, self.step, self.compiled, self.examples = file, step, compiled, examples
        self.batch, self.epochs, self.output, self.state, self.as_json = batch, epochs, output, state, as_json
        weights = {tensor.name for tensor in file.proto.graph.initializer}
        self.weights = [name for name in compiled.defaults if name in weights]
        self.last: StepResult | None = None
        self.losses: list[float] = []

    def run(self, initial_state: Mapping[str, NDArray[Any]], rates: Sequence[float], seed: int) -> None:
        """Run all steps and print the loss of each epoch; save the weights at the end or when stopped."""
        per_epoch = steps_per_epoch(self.examples, self.batch)
        with _sigterm_as_interrupt(), _bar(self.epochs * per_epoch) as progress:
            bar = progress.add_task("", total=self.epochs * per_epoch)
            epoch_losses: list[float] = []
            try:
                for result in train(self.compiled, self.examples, self.batch, self.epochs, initial_state, rates, seed):
                    self.last = result
                    epoch_losses.append(result.loss)
                    progress.update(bar, advance=1, description=f"epoch {result.epoch}, loss {result.loss:.4g}")
                    if result.step == per_epoch:
                        self._finish_epoch(epoch_losses)
                        epoch_losses = []
            except KeyboardInterrupt:
                self._stop()
        if not is_first_rank():
            return
        if self.as_json:
            click.echo(json.dumps({"losses": self.losses, "output": str(self.output)}))
        else:
            out.print(f"Saved as {escape(str(self.output))}.")

    def _finish_epoch(self, losses: list[float]) -> None:
        """Save the weights and report the mean loss of an epoch."""
        self.save()
        self.losses.append(float(np.mean(losses)))
        if not self.as_json and is_first_rank():
            out.print(f"epoch {len(self.losses)}: loss {self.losses[-1]:.6g}, mean of {len(losses)} steps")

    def _stop(self) -> NoReturn:
        message = "stopped before the first step; nothing was written"
        if self.last is not None:
            self.save()
            position = f"after step {self.last.step} of epoch {self.last.epoch}"
            message = f"stopped {position}; saved as {escape(str(self.output))}"
        if is_first_rank():
            err.print(message)
        raise KeyboardInterrupt

    def save(self) -> None:
        """Write the model and the optimizer's state after the last step, on the first rank."""
        assert self.last is not None
        if not is_first_rank():
            return
        weights_and_state = {name: np.asarray(array) for name, array in self.last.weights_and_state.items()}
        write_updated_model(self.file, {name: weights_and_state[name] for name in self.weights}, self.output)
        if self.state is not None:
            with atomic_write(self.state) as file:
                np.savez(file, allow_pickle=False, **{n: a for n, a in weights_and_state.items() if n not in self.weights})


@contextmanager
def _sigterm_as_interrupt() -> Generator[None]:
    """Treat SIGTERM like Ctrl-C inside the context."""

    def raise_interrupt(signum: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _bar(total: int) -> Progress:
    """Return a progress bar that is shown on a terminal only."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
