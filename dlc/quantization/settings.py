"""The settings of a quantization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from dlc.errors import DlcError
from dlc.quantization.ranges import METHODS

Activations: TypeAlias = Literal["u8", "s8"]
Rounding: TypeAlias = Literal["data", "nearest"]
ACTIVATIONS, ROUNDINGS = (get_args(names) for names in (Activations, Rounding))


@dataclass(frozen=True, kw_only=True)
class QuantizationSettings:
    """The settings of a quantization; see `dlc.quantize`. Raises DlcError for invalid values."""

    method: str = "mse"
    percentile: float = 99.99
    symmetric: bool = False
    activations: Activations = "u8"
    per_channel: bool = True
    reduce_range: bool = False
    quantize_outputs: bool = False
    equalize: bool = True
    rounding: Rounding = "data"
    keep_float: Sequence[str] = ()
    max_error: float | None = None
    dynamic: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise DlcError(f"quantize: method: expected one of {', '.join(METHODS)}, got {self.method!r}")
        if self.activations not in ACTIVATIONS:
            raise DlcError(f"quantize: activations: expected one of {', '.join(ACTIVATIONS)}, got {self.activations!r}")
        if self.rounding not in ROUNDINGS:
            raise DlcError(f"quantize: rounding: expected one of {', '.join(ROUNDINGS)}, got {self.rounding!r}")
        if not 50 < self.percentile <= 100:
            raise DlcError(f"quantize: percentile: expected a number above 50 and at most 100, got {self.percentile}")
        if self.max_error is not None and not self.max_error > 0:
            raise DlcError(f"quantize: max_error: expected a relative output error above 0, got {self.max_error}")
