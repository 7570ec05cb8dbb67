"""A module of PyTorch, trained by PyTorch's own loop on code that dlc compiled, then saved as a model that needs no PyTorch.

    pip install torch
    python examples/torch_module.py [--steps 200] [-o spirals.dlc]

Two spirals are told apart by a small network: `torch.compile(net, backend="dlc")` compiles a call of it and its gradient,
`dlc.from_torch` the trained network for any number of points.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import dlc


def spirals(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of two spirals, and which of them each is of."""
    turns = torch.sqrt(torch.rand(count)) * 3 * torch.pi
    of = torch.arange(count) % 2
    angles = turns + torch.pi * of
    points = torch.stack([torch.cos(angles), torch.sin(angles)], 1) * turns[:, None] / 10
    return points + 0.01 * torch.randn(count, 2), of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("-o", "--output", type=Path, default=Path("spirals.dlc"))
    given = parser.parse_args()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2))
    compiled = torch.compile(net, backend="dlc")
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    for step in range(given.steps):
        points, of = spirals(256)
        loss = nn.functional.cross_entropy(compiled(points), of)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == given.steps - 1:
            print(f"step {step}: loss {loss.item():.3f}")
    points, of = spirals(1000)
    dlc.from_torch(net, (points,), dynamic_shapes=({0: torch.export.Dim("points")},)).save(given.output)
    scores = dlc.load(given.output)(points)["output"]
    print(f"{np.mean(scores.argmax(1) == of.numpy()):.1%} of 1000 points told apart by {given.output}")


if __name__ == "__main__":
    main()
