"""Mixtures of experts: a router selects the MLPs (experts) that process each token."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax, nn
from dlc.language_models.checkpoints.checkpoint import ModelConfig, ModelWeights
from dlc.language_models.families.blocks import GatedMlp, Projection
from dlc.language_models.layers import linear


def read_mixture(
    config: ModelConfig, weights: ModelWeights, prefix: str, hidden: int, activation: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Return the mixture under `prefix`: the router `gate`, `experts.0` …, and an optional `shared_expert`."""
    num_experts, num_active = config.size("num_experts"), config.size("num_experts_per_tok")
    if num_active > num_experts:
        raise config.error(f"num_experts_per_tok = {num_active} exceeds num_experts = {num_experts}")
    inner, is_normalized = config.size("moe_intermediate_size"), config.flag("norm_topk_prob")
    router = weights.weight(f"{prefix}.gate.weight", num_experts, hidden)
    experts = [GatedMlp.read(weights, f"{prefix}.experts.{e}", hidden, inner, activation) for e in range(num_experts)]
    shared = _read_shared(config, weights, prefix, hidden, activation)

    def mixture(x: Any) -> Any:
        gates = _gates(nn.softmax(linear(x, router)), num_active, is_normalized)
        total = shared(x) if shared is not None else dnp.zeros_like(x)
        for e, expert in enumerate(experts):
            gate = gates[:, e : e + 1]
            # The weights of an expert are read only if the router selects it for a token.
            total = lax.cond(dnp.any(gate > 0), partial(_add_expert, expert, x), _keep_total, total, gate)
        return total

    return mixture


def _add_expert(expert: GatedMlp, x: Any, total: Any, gate: Any) -> Any:
    return total + gate * expert(x)


def _keep_total(total: Any, gate: Any) -> Any:
    return total


def _gates(probabilities: Any, num_active: int, is_normalized: bool) -> Any:
    """Return the weight of each expert for each token, [T, experts]: 0 except for the top k."""
    values, indices = dnp.top_k(probabilities, num_active)
    if is_normalized:
        values = values / dnp.sum(values, -1, keepdims=True)
    is_expert = indices[:, :, None] == dnp.arange(probabilities.shape[-1])
    return dnp.sum(dnp.where(is_expert, values[:, :, None], np.float32(0)), 1)


def _read_shared(
    config: ModelConfig, weights: ModelWeights, prefix: str, hidden: int, activation: Callable[[Any], Any]
) -> Callable[[Any], Any] | None:
    """Return the expert that processes all tokens, with its gate; None if there is none."""
    inner = config.optional_size("shared_expert_intermediate_size")
    if inner is None:
        return None
    expert = GatedMlp.read(weights, f"{prefix}.shared_expert", hidden, inner, activation)
    # GGUF files store the gate as a vector.
    name = f"{prefix}.shared_expert_gate.weight"
    is_vector = weights.shapes.get(name) == (hidden,)
    gate = Projection(weights.vector(name, hidden)[None] if is_vector else weights.weight(name, 1, hidden))
    return lambda x: nn.sigmoid(gate(x)) * expert(x)
