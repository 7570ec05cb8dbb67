"""Models on an OpenCL device beside PyTorch on the same GPU: python benchmarks/gpu.py [MODEL:BATCH …] [--kernels N]

It needs torch and, for models of images, torchvision; where PyTorch sees no GPU, dlc alone is measured. All of it computes
in f32 (TF32 is off), weights are drawn at random, and inputs are on the device before a call.

torch: PyTorch's operators one by one (`eager`), and recorded as one CUDA graph. dlc: a call when the queue is kept full, a
call that is waited for, what the host alone takes of it, and how many kernels it launches. Medians, in ms. `error`: the
largest difference as a share of PyTorch's largest magnitude. `--kernels`: those that take longest, each launched alone and
waited for, which the times include.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from needed import needed
from rich.console import Console
from rich.table import Table

import dlc

with needed(__doc__):
    import torch
    from torch import nn
    from torch.nn import functional

SECONDS = 0.5
HEADS, WIDTH = 12, 768


class Layer(nn.Module):
    """A layer of a transformer: attention and two products, each behind or before its norm."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first = first
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x: torch.Tensor, past: torch.Tensor | None) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (p.reshape(batch, length, HEADS, -1).transpose(1, 2) for p in self.qkv(x).split(WIDTH, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        seen = functional.scaled_dot_product_attention(q, k, v)
        return self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))

    def forward(self, x: torch.Tensor, past: torch.Tensor | None = None) -> torch.Tensor:
        one, two = self.norms
        if self.first:
            x = x + self.attend(one(x), past)
            return x + self.down(functional.gelu(self.up(two(x))))
        x = one(x + self.attend(x, past))
        return two(x + self.down(functional.gelu(self.up(x))))


class Encoder(nn.Module):
    """BERT's base: twelve layers over 128 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layers = nn.Embedding(30522, WIDTH), nn.ModuleList(Layer(first=False) for _ in range(12))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return x


class Decoder(nn.Module):
    """GPT-2's smallest, one token behind 128 whose keys and values are given."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layers = nn.Embedding(50257, WIDTH), nn.ModuleList(Layer(first=True) for _ in range(12))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for k, layer in enumerate(self.layers):
            x = layer(x, past[k])
        return functional.linear(self.norm(x), self.words.weight)


def of_images(name: str) -> nn.Module:
    with needed(__doc__):
        from torchvision import models
    return getattr(models, name)(weights=None)


def images(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, 224, 224),)


# What makes a model, and the arguments of a call at a batch.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    **{
        name: (lambda name=name: of_images(name), images)
        for name in ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0")
    },
    "bert": (Encoder, lambda b: (torch.randint(30522, (b, 128)),)),
    "gpt2": (Decoder, lambda b: (torch.randint(50257, (b, 1)), torch.randn(12, 2, b, HEADS, 128, WIDTH // HEADS))),
}
DEFAULT = [f"{name}:{batch}" for name in ("resnet50", "efficientnet_b0", "bert", "gpt2") for batch in (1, 32)]


def known(text: str) -> tuple[str, int]:
    name, _, batch = text.partition(":")
    if name not in MODELS or not (batch or "1").isdigit():
        raise argparse.ArgumentTypeError(f"{text}: write MODEL:BATCH, with one of {', '.join(MODELS)}")
    return name, int(batch or 1)


def median_ms(call: Callable[[], object], wait: Callable[[], object], calls: int) -> float:
    """Of so many calls one after the other, which are waited for at their end."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or time.perf_counter() < began + SECONDS:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times) * 1e3


def of_torch(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Iterator[tuple[str, float]]:
    """A call's ms, operator by operator and as a graph."""
    module, inputs, wait = module.cuda(), tuple(a.cuda() for a in inputs), torch.cuda.synchronize
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*inputs)
    wait()
    yield "eager", median_ms(lambda: module(*inputs), wait, 10)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*inputs)
    yield "graph", median_ms(graph.replay, wait, 10)


def of_dlc(model: dlc.Model, inputs: list[Any]) -> Iterator[tuple[str, float]]:
    """A call's ms: the queue kept full, waited for, and the host's part."""
    wait = next(iter(model(*inputs).values())).session.queue.finish
    wait()
    yield "queued", median_ms(lambda: model(*inputs), wait, 10)
    yield "waited", median_ms(lambda: model(*inputs), wait, 1)
    times: list[float] = []
    for _ in range(20):
        start = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - start)
        wait()
    yield "host", statistics.median(times) * 1e3


def kernels(model: dlc.Model, inputs: list[Any]) -> dict[str, list[float]]:
    """The seconds of each launch by its kernel, medians of several calls."""
    program = model.artifact.program
    runs = [program.profile(inputs) for _ in range(5)]
    found: dict[str, list[float]] = defaultdict(list)
    for launches in zip(*runs, strict=True):
        found[launches[0][0].kernel or "copy"].append(statistics.median(seconds for _, seconds in launches))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=known, default=[known(text) for text in DEFAULT], metavar="MODEL:BATCH")
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="show the N that take longest")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    console = Console()
    table = Table("model", "torch eager", "graph", "dlc queued", "waited", "host", "launches", "compile s", "error")
    for name, batch in arguments.models:
        make, arrays = MODELS[name]
        torch.manual_seed(0)
        module, inputs = make().eval(), arrays(batch)
        began = time.perf_counter()
        model = dlc.from_torch(module, inputs, target=arguments.target, cache=False)
        compile_s = time.perf_counter() - began
        given = [dlc.to_device(a.numpy(), arguments.target) for a in inputs]
        with torch.no_grad():
            expected = module(*inputs).numpy()
            peers = dict(of_torch(module, inputs)) if torch.cuda.is_available() else {}
        got = np.asarray(next(iter(model(*given).values())))
        own = dict(of_dlc(model, given))
        times = kernels(model, given)
        cells = [f"{ms:.2f}" if ms is not None else "" for ms in (*map(peers.get, ("eager", "graph")), *own.values())]
        error = np.abs(got - expected).max() / np.abs(expected).max()
        table.add_row(f"{name}:{batch}", *cells, str(sum(map(len, times.values()))), f"{compile_s:.1f}", f"{error:.0e}")
        longest = sorted(times.items(), key=lambda item: -sum(item[1]))[: arguments.kernels]
        for kernel, seconds in longest:
            console.print(f"{name}:{batch} {sum(seconds) * 1e6:9.1f} us {len(seconds):3} x {kernel}")
    console.print(table)


if __name__ == "__main__":
    main()
