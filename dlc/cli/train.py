"""`dlc train`: a model's weights, tuned to examples."""

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
from dlc.cli.derived import decay_option, momentum_option, of_option, rate_option, step_of, wrt_option
from dlc.cli.shared import (
    err,
    json_option,
    model_argument,
    no_cache_option,
    out,
    reports_errors,
    shown_progress,
    target_option,
    threads_option,
)
from dlc.derived import LOSSES, OPTIMIZERS, Loss, Optimizer, TrainStep
from dlc.errors import DlcError, ModelError, ShapeError
from dlc.files.whole_files import require_writable, written_whole
from dlc.frontend.onnx.graph import ModelFile, load
from dlc.frontend.onnx.named import classes_of
from dlc.model_files import compile_file
from dlc.options import Options
from dlc.runtime.models.model import Model
from dlc.training.choosing import Names
from dlc.training.data import Examples
from dlc.training.loop import Done, steps_in, train
from dlc.training.schedules import SCHEDULES, Schedule, learning_rates
from dlc.training.steps import TARGETS, trained_output
from dlc.training.tuned import write_tuned

FILE = click.Path(dir_okay=False, path_type=Path)
# Of a model that leaves it open.
_BATCH_SIZE = 32


@click.command("train")
@model_argument
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE.npz|FOLDER",
    help="Examples: an array for each input by its name, and `labels` (cross_entropy) or `targets` (mse), one example each "
    "along axis 0; or a folder of NAME.npy.",
)
@click.option("-o", "--output", required=True, type=FILE, help="Write the tuned ONNX model here, after each epoch.")
@click.option("--loss", type=click.Choice(LOSSES), required=True, help="What is made less.")
@click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="adamw", show_default=True)
@click.option("--epochs", type=click.IntRange(1), default=1, show_default=True, help="How often each example is seen.")
@click.option(
    "--batch-size", type=click.IntRange(1), help=f"Examples of a step: by default the model's own batch, or {_BATCH_SIZE}."
)
@wrt_option
@of_option
@rate_option
@click.option(
    "--schedule",
    type=click.Choice(SCHEDULES),
    default="constant",
    show_default=True,
    help="How the learning rate goes on from there: to 0 at the last step, in a line or along a cosine.",
)
@click.option("--warmup", type=click.IntRange(0), default=0, help="Steps in which it rises from 0 first, with cosine.")
@momentum_option
@decay_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the order of examples.")
@click.option(
    "--state", type=FILE, metavar="FILE.npz", help="The optimiser's state: read if it is there, and written beside the model."
)
@target_option
@threads_option
@no_cache_option
@json_option
@reports_errors
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
    target: str,
    num_threads: int | None,
    no_cache: bool,
    as_json: bool,
) -> None:
    """Tunes the weights of an ONNX model to examples.

    Nothing else of the file changes. Each epoch sees the examples in another order, a batch at a time; what is left over at
    its end is left out. The model is trained as the file computes it: BatchNorm keeps its statistics, and dropout, which files
    for inference do not have, does not take place. Whoever stops it (Ctrl-C) gets the weights after the last step. With
    --state a later run goes on where this one stopped: `dlc train TUNED.onnx --state FILE.npz …`. A --schedule is of the steps
    of one run.
    """
    step = step_of(optimizer, loss, of, wrt, learning_rate, momentum, weight_decay)
    for path in (output, *([state] if state is not None else [])):
        require_writable(path)
    file = load(model)
    names = Names.of(file)
    taken = [info.name for info in names.inputs] + [TARGETS[loss]]
    examples = Examples.read(data, taken)
    batch = _batch_size(names, batch_size, len(examples))
    try:
        rates = learning_rates(schedule, step.rate, epochs * steps_in(examples, batch), warmup)
    except DlcError as error:
        raise click.UsageError(str(error)) from error
    if loss == "cross_entropy":
        _require_labels(examples, classes_of(file, trained_output(names, step)))
    shapes = {info.name: (batch, *examples.arrays[info.name].shape[1:]) for info in names.inputs}
    options = Options.of(num_threads=num_threads, cache=False if no_cache else None)
    with shown_progress() as progress:
        compiled = compile_file(model, target, shapes, options, derived=step, progress=progress)
        examples.require_fitting([info for info in compiled.inputs if info.name not in compiled.defaults])
        first = _read_state(state, compiled) if state is not None and state.exists() else {}
    _Run(file, step, compiled, examples, batch, epochs, output, state, as_json).go(first, rates, seed)


def _batch_size(names: Names, given: int | None, count: int) -> int:
    """How many examples a step takes."""
    own = {info.shape[0] for info in names.inputs if info.shape and isinstance(info.shape[0], int)}
    if len(own) > 1:
        raise ShapeError(f"{names.model}: its inputs differ along axis 0: {', '.join(map(str, names.inputs))}")
    fixed = next(iter(own), None)
    if fixed is not None and given is not None and given != fixed:
        raise ShapeError(f"{names.model}: the file has batches of {fixed}, not {given}; export it with a batch that is open")
    size = int(fixed) if fixed is not None else given or min(_BATCH_SIZE, count)
    if size > count:
        raise ShapeError(f"{names.model}: a step takes {size} examples, the data has {count}")
    return size


def _require_labels(examples: Examples, classes: int | None) -> None:
    labels = examples.arrays[TARGETS["cross_entropy"]]
    if labels.dtype.kind not in "iu":
        return  # of the wrong dtype, which the model says
    if labels.min() < 0 or (classes is not None and labels.max() >= classes):
        most = f"0 to {classes - 1}" if classes is not None else "0 or more"
        raise ModelError(f"{examples.source}: labels are {labels.min()} to {labels.max()}, the classes {most}")


def _read_state(path: Path, step: Model) -> dict[str, NDArray[Any]]:
    try:
        arrays = read_npz(path)
    except ValueError as error:
        raise ModelError(f"{path}: not an optimiser's state, as --state writes it: {error}") from error
    wanted = {info.name: info for info in step.inputs if info.name in step.defaults}
    if unknown := [name for name, a in arrays.items() if name not in wanted or wanted[name].shape != a.shape]:
        raise ModelError(f"{path}: the state of another model or optimiser: {', '.join(unknown[:4])}")
    return arrays


class _Run:
    """A training while it runs: what was made so far, and where it goes."""

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
        self.last: Done | None = None
        self.losses: list[float] = []

    def go(self, first: Mapping[str, NDArray[Any]], rates: Sequence[float], seed: int) -> None:
        """Takes all steps, and says how the loss went; what was made is saved, also where it is stopped."""
        per_epoch = steps_in(self.examples, self.batch)
        with _stoppable(), _bar(self.epochs * per_epoch) as progress:
            bar = progress.add_task("", total=self.epochs * per_epoch)
            of_epoch: list[float] = []
            try:
                for done in train(self.compiled, self.examples, self.batch, self.epochs, first, rates, seed):
                    self.last = done
                    of_epoch.append(done.loss)
                    progress.update(bar, advance=1, description=f"epoch {done.epoch}, loss {done.loss:.4g}")
                    if done.step == per_epoch:
                        self._ended(of_epoch)
                        of_epoch = []
            except KeyboardInterrupt:
                self._stopped()
        if self.as_json:
            click.echo(json.dumps({"losses": self.losses, "output": str(self.output)}))
        else:
            out.print(f"Saved as {escape(str(self.output))}.")

    def _ended(self, losses: list[float]) -> None:
        """The end of an epoch."""
        self.save()
        self.losses.append(float(np.mean(losses)))
        if not self.as_json:
            out.print(f"epoch {len(self.losses)}: loss {self.losses[-1]:.6g}, the mean of {len(losses)} steps")

    def _stopped(self) -> NoReturn:
        if self.last is None:
            err.print("stopped before the first step; nothing is written")
        else:
            self.save()
            where = f"after step {self.last.step} of epoch {self.last.epoch}"
            err.print(f"stopped {where}; saved as {escape(str(self.output))}")
        raise click.exceptions.Exit(130)

    def save(self) -> None:
        """Writes the model, and the optimiser's state, after the last step."""
        assert self.last is not None
        carried = {name: np.asarray(array) for name, array in self.last.carried.items()}
        write_tuned(self.file, {name: carried[name] for name in self.weights}, self.output)
        if self.state is not None:
            with written_whole(self.state) as file:
                np.savez(file, allow_pickle=False, **{n: a for n, a in carried.items() if n not in self.weights})


@contextmanager
def _stoppable() -> Generator[None]:
    """Inside, being told to end is like Ctrl-C."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _bar(total: int) -> Progress:
    """A bar on a terminal, nothing elsewhere."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
