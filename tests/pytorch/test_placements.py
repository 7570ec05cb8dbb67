"""Placements of DTensor annotate the inputs and parameters of modules."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
import pytest

import dlc
from dlc import P
from dlc.distributed.dtensor_placements import spec_of_placements
from dlc.errors import DlcError, DTypeError, ShapeError, UnsupportedError
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.threads import run_ranks

MESH = Mesh.of({"data": 2, "model": 2})


class Shard:
    """A substitute for the class of PyTorch, which is optional."""

    def __init__(self, dim: int) -> None:
        self.dim = dim


class Replicate:
    """A substitute, like `Shard`."""


class Partial:
    """A substitute, like `Shard`."""


@pytest.mark.parametrize(
    ("placements", "spec"),
    [
        ([Shard(0), Replicate()], P("data", None)),
        ([Shard(-1), Shard(-1)], P(None, ("data", "model"))),
        ([Shard(1), Shard(0)], P("model", "data")),
        (P("data"), P("data")),
    ],
)
def test_specs(placements: Any, spec: P) -> None:
    assert spec_of_placements(placements, MESH, 2, "x") == spec


def test_errors() -> None:
    with pytest.raises(DTypeError, match=r"x: 1 placements on the mesh data=2,model=2; expected one for each of its 2 axes"):
        spec_of_placements([Shard(0)], MESH, 2, "x")
    with pytest.raises(ShapeError, match="of a tensor with 2 axes"):
        spec_of_placements([Shard(2), Replicate()], MESH, 2, "x")
    with pytest.raises(UnsupportedError, match="expected Shard or Replicate"):
        spec_of_placements([Partial(), Replicate()], MESH, 2, "x")


def test_a_tensor_parallel_module() -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed.tensor import Replicate, Shard

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    x = torch.randn(6, 8)
    placements = {
        "input": [Shard(0), Replicate()],
        "0.weight": [Replicate(), Shard(0)],
        "0.bias": [Replicate(), Shard(0)],
        "2.weight": [Replicate(), Shard(1)],
    }

    # torch.export runs in one thread at a time.
    exporting = Lock()

    def run(rank: int) -> tuple[Any, Any]:
        with exporting:
            model: Any = dlc.from_torch(module, (x,), mesh=MESH, placements=placements)
        return model(x.numpy())["output"], model.program

    for result, program in run_ranks(MESH, run):
        np.testing.assert_allclose(result, module(x).detach().numpy(), atol=1e-5)
        assert program.inputs == ((("data",), ()),)
        assert program.text().count("// dl.all_reduce") == 1
    with pytest.raises(DlcError, match=r"no input or parameter is named '3.weight'; the inputs are input"):
        dlc.from_torch(module, (x,), mesh=Mesh.of({"data": 1}), placements={"3.weight": P()})
