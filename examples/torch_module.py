"""Train a PyTorch module with dlc as the backend of `torch.compile`, then save it as a model that runs without PyTorch.

    pip install torch
    python examples/torch_module.py [--steps 200] [-o spirals.dlc]

A small network learns to classify the points of two spirals. `torch.compile(net, backend="dlc")` compiles its forward and
backward pass; `dlc.from_torch` compiles the trained network for any number of points.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import dlc


def spirals(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw points [count, 2] of two spirals; return them and the spiral of each, 0 or 1."""
    radius = torch.sqrt(torch.rand(count)) * 3 * torch.pi
    labels = torch.arange(count) % 2
    angles = radius + torch.pi * labels
    points = torch.stack([torch.cos(angles), torch.sin(angles)], 1) * radius[:, None] / 10
    return points + 0.01 * torch.randn(count, 2), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="number of training steps (default: 200)")
    parser.add_argument("-o", "--output", type=Path, default=Path("spirals.dlc"), help="the saved model (default: spirals.dlc)")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2))
    compiled = torch.compile(net, backend="dlc")
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    for step in range(arguments.steps):
        points, labels = spirals(256)
        loss = nn.functional.cross_entropy(compiled(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == arguments.steps - 1:
            print(f"step {step}: loss {loss.item():.3f}")
    points, labels = spirals(1000)
    dlc.from_torch(net, (points,), dynamic_shapes=({0: torch.export.Dim("points")},)).save(arguments.output)
    scores = dlc.load(arguments.output)(points)["output"]
    print(f"{arguments.output} classifies {np.mean(scores.argmax(1) == labels.numpy()):.1%} of 1000 points correctly")


if __name__ == "__main__":
    main()
