"""Settings of sampling: how the next token is chosen from logits."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dlc.language_models.setting_limits import require_integer, require_number


@dataclass(frozen=True)
class Sampling:
    """Settings of sampling; they are inputs of the program and not part of it.

    Attributes:
        temperature: Divides the logits; 0 takes the most probable token.
        top_k: Only the k most probable tokens; 0: all.
        top_p: Only the most probable tokens whose probabilities sum to p.
        min_p: Only tokens with at least p times the largest probability.
        repetition_penalty: Divides positive and multiplies negative logits of tokens that occurred before.
        seed: Equal seeds give equal draws.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_number("temperature", self.temperature, 0, 1e6)
        require_integer("top_k", self.top_k, 0, 2**31 - 1)
        require_number("top_p", self.top_p, 0, 1)
        require_number("min_p", self.min_p, 0, 1)
        require_number("repetition_penalty", self.repetition_penalty, 1e-6, 1e6)
        require_integer("seed", self.seed, 0, 2**63 - 1)

    def arrays(self) -> dict[str, Any]:
        """Return the settings as inputs of the program."""
        dtypes = {"top_k": np.int32, "seed": np.int64}
        return {f.name: np.asarray(getattr(self, f.name), dtypes.get(f.name, np.float32)) for f in fields(self)}
