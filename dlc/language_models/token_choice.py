"""Choose the next token from logits, inside a compiled program."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax, nn, random


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
