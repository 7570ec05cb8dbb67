"""What can be compiled of a model in its place: a derivative, a step of its training, or it with parameters; said, not made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from dlc.errors import DlcError
from dlc.misuse import explaining_methods

Mode: TypeAlias = Literal["vjp", "jvp", "hvp"]
Optimizer: TypeAlias = Literal["sgd", "adam", "adamw"]
Loss: TypeAlias = Literal["mse", "cross_entropy"]
MODES, OPTIMIZERS, LOSSES = (get_args(names) for names in (Mode, Optimizer, Loss))
# In `wrt`: every weight that training changes.
WEIGHTS = "weights"
# Of each optimiser, where it is not said.
LEARNING_RATES: dict[Optimizer, float] = {"sgd": 1e-2, "adam": 1e-3, "adamw": 1e-3}


@dataclass(frozen=True)
class Derivative:
    """The derivative of some outputs `of` a model with respect to inputs and weights.

    `wrt` has names, patterns such as `layer4.*`, and "weights" for all that training changes.
    """

    mode: Mode
    of: tuple[str, ...]
    wrt: tuple[str, ...]


@explaining_methods("dlc.TrainStep")
@dataclass(frozen=True)
class TrainStep:
    """One step of an optimiser: from weights, its state and a batch to the loss, the next weights and the next state.

        dlc.compile_model("m.onnx", train_step=dlc.TrainStep("adamw", "cross_entropy"))

    `of` is the output that the loss is of, which may be left out where the model has one; `wrt` what is trained, as for a
    derivative. `learning_rate` is what a call that gives none uses; `momentum` is of sgd, `weight_decay` of adamw.
    With `donate` weights and state are written over those that a call gives, which takes half of the memory.
    Raises DlcError for an optimiser or loss that there is not, and for a setting that the optimiser has not.
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
        """The learning rate of a call that gives none."""
        return LEARNING_RATES[self.optimizer] if self.learning_rate is None else self.learning_rate


@dataclass(frozen=True)
class Parametrized:
    """The model, of which some initialisers are inputs that a call may leave out; `names` are theirs, or patterns of them."""

    names: tuple[str, ...]


Derived: TypeAlias = "Derivative | TrainStep | Parametrized"


def derived_of(
    vjp: str | Sequence[str] | None,
    jvp: str | Sequence[str] | None,
    hvp: str | None,
    train_step: object,
    wrt: str | Sequence[str] | None,
    parameters: str | Sequence[str] | None = None,
) -> Derived | None:
    """What is asked for by the arguments of `compile_model`; None for the model itself.

    Raises DlcError for what is no step, for more than one of them, and for a derivative of nothing or with respect to nothing.
    """
    asked = {name: value for name, value in (("vjp", vjp), ("jvp", jvp), ("hvp", hvp)) if value is not None}
    if not isinstance(train_step, TrainStep | None):
        raise DlcError(f"train_step: expected a step, such as dlc.TrainStep('adamw', 'mse'), got {train_step!r}")
    others = {"train_step": train_step, "parameters": parameters}
    given = [*asked, *(name for name, value in others.items() if value is not None)]
    if len(given) > 1:
        raise DlcError(f"{' and '.join(given)} are given; one artifact is one of them")
    if train_step is not None:
        if wrt is not None:
            raise DlcError("wrt goes with vjp, jvp and hvp; of a training step it is part of: TrainStep(…, wrt=(…,))")
        return train_step
    names = _names(wrt)
    if not asked:
        if names:
            raise DlcError("wrt is given without vjp, jvp or hvp, which say what is differentiated")
        return Parametrized(_names(parameters)) if _names(parameters) else None
    ((mode, of),) = asked.items()
    if not _names(of) or not names:
        raise DlcError(f"{mode}: say what is differentiated and, in wrt, with respect to which inputs and weights")
    return Derivative(_mode(mode), _names(of), names)


def _mode(name: str) -> Mode:
    return next(mode for mode in MODES if mode == name)


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)
