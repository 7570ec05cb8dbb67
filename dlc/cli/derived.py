"""Options that say what is compiled of a model in its place: a derivative, a step of its training, or it with parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dlc.cli.shared import Numbers
from dlc.derived import LOSSES, MODES, OPTIMIZERS, WEIGHTS, Derived, Loss, Optimizer, TrainStep, derived_of
from dlc.errors import DlcError

Command = TypeVar("Command", bound=Callable[..., Any])
# The options of a training step, in the order of their help; and all that say what is derived.
_STEP = ("loss", "of", "learning_rate", "momentum", "weight_decay", "donate")
_DERIVED = (*MODES, "train_step", "wrt", "parameters", *_STEP)


class DerivingCommand(click.Command):
    """A command whose help lists apart what `derived_options` adds."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        records = [(o.name in _DERIVED, record) for o in options if (record := o.get_help_record(ctx)) is not None]
        for apart, title in ((False, "Options"), (True, "A derivative, a step of training or parameters, of an ONNX model")):
            with formatter.section(title):
                formatter.write_dl([record for is_apart, record in records if is_apart == apart])


def _split(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _names(flag: str, help: str) -> Callable[[Command], Command]:
    """An option of names, repeatable or with commas between them."""
    return click.option(flag, multiple=True, callback=_split, metavar="NAME,…", help=help)


wrt_option = _names(
    "--wrt",
    f"With respect to these inputs and weights; patterns such as 'layer4.*'; {WEIGHTS}: all that training changes.",
)
loss_option = click.option("--loss", type=click.Choice(LOSSES), help="What the training step makes less.")
of_option = click.option("--of", metavar="OUTPUT", help="The output, or tensor inside, that the loss is of.")
rate_option = click.option(
    "--learning-rate", type=Numbers(0, min_open=True), help="Of steps that are given none: 0.01 for sgd, else 0.001."
)
momentum_option = click.option("--momentum", type=Numbers(0, 1, max_open=True), help="Of sgd; by default none.")
decay_option = click.option("--weight-decay", type=Numbers(0), help="Of adamw; by default 0.01.")


def step_of(
    optimizer: Optimizer,
    loss: Loss,
    of: str | None,
    wrt: tuple[str, ...],
    learning_rate: float | None,
    momentum: float | None,
    weight_decay: float | None,
    donate: bool | None = None,
) -> TrainStep:
    """The step that options say. Raises click's UsageError for those that do not go together."""
    try:
        return TrainStep(optimizer, loss, of, wrt or (WEIGHTS,), learning_rate, momentum, weight_decay, bool(donate))
    except DlcError as error:
        raise click.UsageError(str(error)) from error


def derived_options(command: Command) -> Command:
    """Adds the options to a command, which is given `derived`: what they say, None for the model itself."""

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        return command(derived=_derived(**{name: given.pop(name) for name in _DERIVED}), **given)

    options = [
        _names("--vjp", "Compile the gradient of these outputs instead: cotangent:OUTPUT is an input, grad:NAME an output."),
        _names("--jvp", "Compile their change instead: tangent:NAME is an input, tangent:OUTPUT an output."),
        _names("--hvp", "Compile the Hessian of an output of one element, times tangent:NAME, instead: hvp:NAME."),
        wrt_option,
        _names("--parameters", "Of the model itself: initialisers, or patterns, that are inputs; a call may leave them out."),
        click.option("--train-step", type=click.Choice(OPTIMIZERS), help="Compile a step of this optimiser instead."),
        loss_option,
        of_option,
        rate_option,
        momentum_option,
        decay_option,
        click.option("--donate", is_flag=True, default=None, help="Write weights and state over those that a call gives."),
    ]
    decorated: Any = run
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def _derived(train_step: Optimizer | None, wrt: tuple[str, ...], parameters: tuple[str, ...], **given: Any) -> Derived | None:
    modes = {mode: given.pop(mode) or None for mode in MODES}
    if train_step is None:
        if said := [f"--{name.replace('_', '-')}" for name in _STEP if given[name] is not None]:
            raise click.UsageError(
                f"{', '.join(said)} {'is' if len(said) == 1 else 'are'} of a training step; say --train-step"
            )
        try:
            return derived_of(modes["vjp"], modes["jvp"], modes["hvp"], None, wrt or None, parameters or None)
        except DlcError as error:
            raise click.UsageError(str(error)) from error
    if any(modes.values()) or parameters:
        other = "a derivative" if any(modes.values()) else "--parameters"
        raise click.UsageError(f"--train-step and {other} are given; one artifact is one of them")
    if given["loss"] is None:
        raise click.UsageError(f"--train-step: say --loss ({', '.join(LOSSES)})")
    return step_of(train_step, wrt=wrt, **given)
