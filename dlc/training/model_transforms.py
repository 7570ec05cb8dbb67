"""Requests to compile a derivative, a training step or a parameterized version of a model; `dlc.training` builds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from dlc.argument_validation.validate import validate_methods
from dlc.errors import DlcError

DerivativeMode: TypeAlias = Literal["vjp", "jvp", "hvp"]
Optimizer: TypeAlias = Literal["sgd", "adam", "adamw"]
Loss: TypeAlias = Literal["mse", "cross_entropy"]
MODES, OPTIMIZERS, LOSSES = (get_args(names) for names in (DerivativeMode, Optimizer, Loss))
# In `wrt`: all trainable weights.
WEIGHTS = "weights"
# Default learning rates.
LEARNING_RATES: dict[Optimizer, float] = {"sgd": 1e-2, "adam": 1e-3, "adamw": 1e-3}


@dataclass(frozen=True)
class DerivativeRequest:
    """A derivative of the outputs `of` of a model with respect to inputs and weights.

    `wrt` holds names, patterns such as `layer4.*`, and "weights" for all trainable weights.
    """

    mode: DerivativeMode
    of: tuple[str, ...]
    wrt: tuple[str, ...]


@validate_methods("dlc.TrainStep")
@dataclass(frozen=True)
class TrainStep:
    """One step of an optimizer: (weights, optimizer state, batch) -> (loss, new weights, new state).

        dlc.compile_model("m.onnx", train_step=dlc.TrainStep("adamw", "cross_entropy"))

    `of` is the output that the loss takes; it may be omitted if the model has one output. `wrt` selects the trained weights, as
    for derivatives. `learning_rate` is the default for calls that pass none; `momentum` applies to sgd, `weight_decay` to
    adamw. With `donate`, the new weights and state overwrite those of the caller, which halves the memory. Raises DlcError for
    an unknown optimizer or loss, and for a setting that the optimizer does not have.
    """

    optimizer: Optimizer
    loss: Loss
    of: str | None = None
    wrt: tuple[str, ...] = (WEIGHTS,)
    learning_rate: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    donate: bool = False

    def __post_init__(self) -> None:
        if self.momentum is not None and self.optimizer != "sgd":
            raise DlcError(f"train_step: momentum is a setting of sgd, not of {self.optimizer}")
        if self.weight_decay is not None and self.optimizer != "adamw":
            raise DlcError(f"train_step: weight_decay is a setting of adamw, not of {self.optimizer}")

    @property
    def rate(self) -> float:
        """The learning rate of a call that passes none."""
        return LEARNING_RATES[self.optimizer] if self.learning_rate is None else self.learning_rate


@dataclass(frozen=True)
class ParameterizedModel:
    """The model with some initializers as inputs that a call may omit; `names` are their names or patterns."""

    names: tuple[str, ...]


ModelTransform: TypeAlias = "DerivativeRequest | TrainStep | ParameterizedModel"


def parse_model_transform(
    vjp: str | Sequence[str] | None,
    jvp: str | Sequence[str] | None,
    hvp: str | None,
    train_step: object,
    wrt: str | Sequence[str] | None,
    parameters: str | Sequence[str] | None = None,
) -> ModelTransform | None:
    """Return the transform that the arguments of `compile_model` request; None for the model itself.

    Raises DlcError for an invalid or ambiguous request, and for a derivative without outputs or without `wrt`.
    """
    derivatives = {name: value for name, value in (("vjp", vjp), ("jvp", jvp), ("hvp", hvp)) if value is not None}
    if not isinstance(train_step, TrainStep | None):
        raise DlcError(f"train_step: expected a TrainStep, such as dlc.TrainStep('adamw', 'mse'), got {train_step!r}")
    others = {"train_step": train_step, "parameters": parameters}
    requests = [*derivatives, *(name for name, value in others.items() if value is not None)]
    if len(requests) > 1:
        raise DlcError(f"{' and '.join(requests)} cannot be combined; compile one model for each")
    if train_step is not None:
        if wrt is not None:
            raise DlcError("wrt applies to vjp, jvp and hvp; for a training step, pass TrainStep(…, wrt=(…,))")
        return train_step
    names = _names(wrt)
    if not derivatives:
        if names:
            raise DlcError("wrt needs vjp, jvp or hvp, which select the outputs to differentiate")
        return ParameterizedModel(_names(parameters)) if _names(parameters) else None
    ((mode, of),) = derivatives.items()
    if not _names(of) or not names:
        raise DlcError(f"{mode}: name the outputs to differentiate and, in wrt, the inputs and weights to differentiate by")
    return DerivativeRequest(_mode(mode), _names(of), names)


def _mode(name: str) -> DerivativeMode:
    return next(mode for mode in MODES if mode == name)


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)
