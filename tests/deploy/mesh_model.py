"""A model on a mesh; importing this module opens no device, so that processes may fork afterwards."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import dlc
from dlc import P
from dlc.runtime.models.model import Model


@cache
def on_mesh() -> Model:
    """The program of a rank on a mesh of four: a sum over one axis, a permutation, a gathered array, and split inputs."""
    mesh = dlc.make_mesh({"data": 2, "model": 2})

    def on_shards(x: Any, w: Any) -> Any:
        product = dlc.lax.psum(x @ w, "model")
        return dlc.lax.ppermute(product, "data", [(0, 1), (1, 0)]), dlc.lax.all_gather(product, ("data", "model"))

    specs = P("data", "model"), P("model")
    function = dlc.shard_map(on_shards, in_specs=specs, out_specs=(P("data"), P(("data", "model"))))
    return dlc.jit(mesh=mesh)(function).lower(np.ones((4, 64), np.float32), np.ones((64, 6), np.float32)).compile()
