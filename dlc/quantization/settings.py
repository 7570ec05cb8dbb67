"""What a quantisation is asked for, as one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from dlc.errors import DlcError

Method: TypeAlias = Literal["minmax", "percentile", "entropy", "mse"]
Activations: TypeAlias = Literal["u8", "s8"]
Rounding: TypeAlias = Literal["data", "nearest"]
METHODS, ACTIVATIONS, ROUNDINGS = (get_args(names) for names in (Method, Activations, Rounding))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a model is quantised; what each field means stands at `dlc.quantize`. Raises DlcError for what is no setting."""

    method: Method = "mse"
    percentile: float = 99.99
    symmetric: bool = False
    activations: Activations = "u8"
    per_channel: bool = True
    everywhere: bool = False
    equalize: bool = True
    rounding: Rounding = "data"
    keep: Sequence[str] = ()
    bound: float | None = None
    dynamic: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise DlcError(f"quantize: no method {self.method!r}; there are {', '.join(METHODS)}")
        if self.activations not in ACTIVATIONS:
            raise DlcError(f"quantize: no type {self.activations!r} of activations; there are {', '.join(ACTIVATIONS)}")
        if self.rounding not in ROUNDINGS:
            raise DlcError(f"quantize: no rounding {self.rounding!r}; there are {', '.join(ROUNDINGS)}")
        if not 50 < self.percentile <= 100:
            raise DlcError(f"quantize: percentile: expected a number above 50 and up to 100, got {self.percentile}")
        if self.bound is not None and not self.bound > 0:
            raise DlcError(f"quantize: bound: expected an error above 0, as a share of the output, got {self.bound}")
