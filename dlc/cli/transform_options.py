"""Command-line options for derivatives, training steps, and parameters as inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dlc.cli.common import NonNanFloatRange
from dlc.errors import DlcError
from dlc.training.model_transforms import (
    LOSSES,
    MODES,
    OPTIMIZERS,
    WEIGHTS,
    Loss,
    ModelTransform,
    Optimizer,
    TrainStep,
    parse_model_transform,
)

Command = TypeVar("Command", bound=Callable[..., Any])
# Options of a training step, in the order of the help; all options that `transform_options` adds.
_STEP_OPTIONS = ("loss", "of", "learning_rate", "momentum", "weight_decay", "donate")
_TRANSFORM_OPTIONS = (*MODES, "train_step", "wrt", "parameters", *_STEP_OPTIONS)


class TransformCommand(click.Command):
    """A click command with a separate help section for the options of `transform_options`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        records = [(o.name in _TRANSFORM_OPTIONS, record) for o in options if (record := o.get_help_record(ctx)) is not None]
        for is_transform, title in ((False, "Options"), (True, "Derivatives, training steps and parameters of an ONNX model")):
            with formatter.section(title):
                formatter.write_dl([record for is_transform_option, record in records if is_transform_option == is_transform])


def _split(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _names(flag: str, help: str) -> Callable[[Command], Command]:
    """Return an option that takes comma-separated names and is repeatable."""
    return click.option(flag, multiple=True, callback=_split, metavar="NAME,…", help=help)


wrt_option = _names(
    "--wrt",
    f"Differentiate with respect to these inputs and weights; patterns such as 'layer4.*'; {WEIGHTS}: all trainable weights.",
)
loss_option = click.option("--loss", type=click.Choice(LOSSES), help="The loss that the training step minimizes.")
of_option = click.option("--of", metavar="OUTPUT", help="The output or intermediate tensor from which the loss is computed.")
rate_option = click.option(
    "--learning-rate",
    type=NonNanFloatRange(0, min_open=True),
    help="Default learning rate; if not set, 0.01 for sgd, else 0.001.",
)
momentum_option = click.option("--momentum", type=NonNanFloatRange(0, 1, max_open=True), help="Momentum of sgd; default: none.")
decay_option = click.option("--weight-decay", type=NonNanFloatRange(0), help="Weight decay of adamw; default: 0.01.")


def train_step_from_options(
    optimizer: Optimizer,
    loss: Loss,
    of: str | None,
    wrt: tuple[str, ...],
    learning_rate: float | None,
    momentum: float | None,
    weight_decay: float | None,
    donate: bool | None = None,
) -> TrainStep:
    """Return the training step that the options describe. Raises click's UsageError for options that exclude each other."""
    try:
        return TrainStep(optimizer, loss, of, wrt or (WEIGHTS,), learning_rate, momentum, weight_decay, bool(donate))
    except DlcError as error:
        raise click.UsageError(str(error)) from error


def transform_options(command: Command) -> Command:
    """Decorator: add the options to a command, and pass it the selected `ModelTransform`, or None, as `transform`."""

    @functools.wraps(command)
    def run(**parameters: Any) -> Any:
        return command(
            transform=_transform_from_options(**{name: parameters.pop(name) for name in _TRANSFORM_OPTIONS}), **parameters
        )

    options = [
        _names(
            "--vjp",
            "Compile the vector-Jacobian product (gradient) of these outputs: input cotangent:OUTPUT, output grad:NAME.",
        ),
        _names("--jvp", "Compile the Jacobian-vector product of these outputs: input tangent:NAME, output tangent:OUTPUT."),
        _names("--hvp", "Compile the Hessian-vector product of a one-element output: input tangent:NAME, output hvp:NAME."),
        wrt_option,
        _names("--parameters", "Compile the model with these initializers (names or patterns) as optional inputs."),
        click.option("--train-step", type=click.Choice(OPTIMIZERS), help="Compile a training step with this optimizer."),
        loss_option,
        of_option,
        rate_option,
        momentum_option,
        decay_option,
        click.option(
            "--donate", is_flag=True, default=None, help="Update the weights and state arrays of the caller in place."
        ),
    ]
    decorated_command: Any = run
    for option in reversed(options):
        decorated_command = option(decorated_command)
    return decorated_command


def _transform_from_options(
    train_step: Optimizer | None, wrt: tuple[str, ...], parameters: tuple[str, ...], **step_options: Any
) -> ModelTransform | None:
    modes = {mode: step_options.pop(mode) or None for mode in MODES}
    if train_step is None:
        if step_flags := [f"--{name.replace('_', '-')}" for name in _STEP_OPTIONS if step_options[name] is not None]:
            raise click.UsageError(f"{', '.join(step_flags)}: only valid for a training step; add --train-step")
        try:
            return parse_model_transform(modes["vjp"], modes["jvp"], modes["hvp"], None, wrt or None, parameters or None)
        except DlcError as error:
            raise click.UsageError(str(error)) from error
    if any(modes.values()) or parameters:
        conflict = "a derivative" if any(modes.values()) else "--parameters"
        raise click.UsageError(f"--train-step and {conflict} exclude each other; compile two models")
    if step_options["loss"] is None:
        raise click.UsageError(f"--train-step: add --loss ({', '.join(LOSSES)})")
    return train_step_from_options(train_step, wrt=wrt, **step_options)
