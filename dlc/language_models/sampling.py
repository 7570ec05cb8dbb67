"""Choose the next token from logits, inside a compiled program."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax, nn, random
from dlc.errors import ArgumentError


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
        limits = {
            "temperature": (0, 1e6),
            "top_k": (0, 2**31 - 1),
            "top_p": (0, 1),
            "min_p": (0, 1),
            "repetition_penalty": (1e-6, 1e6),
            "seed": (0, 2**63 - 1),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or not low <= value <= high:
                raise ArgumentError(f"{name} = {value!r}; expected a number from {low} to {high}")

    def arrays(self) -> dict[str, Any]:
        """Return the settings as inputs of the program."""
        dtypes = {"top_k": np.int32, "seed": np.int64}
        return {f.name: np.asarray(getattr(self, f.name), dtypes.get(f.name, np.float32)) for f in fields(self)}


def choose_token(logits: Any, seen: Any, position: Any, settings: dict[str, Any]) -> Any:
    """Return a token id, i32 of rank 0, from logits [V] and the tokens that occurred before, bool [V].

    Temperature applies first, then top-k, top-p and min-p to the original distribution of the tempered logits. The draw is
    the arg max of logits plus Gumbel noise, whose key is derived from the seed and the position.
    """
    penalty = settings["repetition_penalty"]
    logits = dnp.where(seen, dnp.where(logits > 0, logits / penalty, logits * penalty), logits)

    def draw() -> Any:
        scaled = logits / dnp.maximum(settings["temperature"], np.float32(1e-6))
        threshold = lax.cond(
            (settings["top_k"] > 0) | (settings["top_p"] < 1),
            lambda: _sorted_threshold(scaled, settings["top_k"], settings["top_p"]),
            lambda: dnp.min(scaled),
        )
        # p ≥ min_p · max p  ⇔  z ≥ max z + log(min_p)
        threshold = dnp.maximum(threshold, dnp.max(scaled) + dnp.log(settings["min_p"]))
        key = random.fold_in(random.key(settings["seed"]), position)
        noise = random.gumbel(key, logits.shape)
        return dnp.argmax(dnp.where(scaled >= threshold, scaled + noise, -np.inf)).astype(np.int32)

    return lax.cond(settings["temperature"] > 0, draw, lambda: dnp.argmax(logits).astype(np.int32))


def _sorted_threshold(logits: Any, top_k: Any, top_p: Any) -> Any:
    """Return the smallest logit that top-k and top-p select; the largest logit is always selected."""
    descending = dnp.sort(logits, descending=True)
    ranks = dnp.arange(logits.shape[0])
    probabilities = nn.softmax(descending)
    is_kept = (dnp.cumsum(probabilities) - probabilities < top_p) & ((ranks < top_k) | (top_k == 0))
    count = dnp.maximum(dnp.sum(is_kept), 1)
    return dnp.take(descending, count - 1, mode="clip")
