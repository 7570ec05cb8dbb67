"""Benchmark training steps on two ranks with one thread each, against one process with two threads and the simulated times.

`mpiexec -n 2 python -m mpi4py benchmarks/mesh_steps.py`. Needs as many free cores as ranks: MPI's collectives busy-wait. Calls
are interleaved, and the shortest of many counts. While rank 0 measures one process, the other ranks sleep. The simulation is
that of `dlc explain-sharding`, with the FLOP rate of one rank that computes the unsharded step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

import numpy as np
from mpi4py import MPI

import dlc
import dlc.numpy as dnp
from dlc import P, nn
from dlc.compiler.sharding import ShardedProgram
from dlc.compiler.sharding_report import CommunicationModel, report_sharding
from dlc.measure.network import NetworkRates, measure_network
from dlc.runtime.collectives.start import start

_ROUNDS = 40
_RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """A loss function with its parameters, its batch, and the shardings of the parameters over the axis `x`."""

    loss: Callable[[Any, Any], Any]
    parameters: Any
    batch: Any
    specs: Any
    batch_spec: P


def gpt_loss(parameters: Any, tokens: Any) -> Any:
    """Return the loss of next tokens of a causal transformer."""
    h = nn.embedding(parameters["table"], tokens[:, :-1])
    for block in parameters["blocks"]:
        n = nn.layer_norm(h, block["gain"], block["bias"])
        q, k, v = (dnp.einsum("btd,dhk->bhtk", n, block[w]) for w in "qkv")
        scores = dnp.einsum("bhtk,bhsk->bhts", q, k) / np.float32(np.sqrt(q.shape[-1]))
        causal = dnp.where(dnp.tril(dnp.ones(scores.shape[-2:], bool)), scores, -1e9)
        attended = dnp.einsum("bhts,bhsk->bhtk", nn.softmax(causal), v)
        h = h + dnp.einsum("bhtk,hkd->btd", attended, block["o"])
        n = nn.layer_norm(h, block["gain"], block["bias"])
        h = h + nn.gelu(n @ block["up"]) @ block["down"]
    return nn.softmax_cross_entropy(h @ parameters["table"].T, tokens[:, 1:]).mean()


def mlp_loss(parameters: Any, x: Any) -> Any:
    """Return the loss of a perceptron with one wide hidden layer."""
    return dnp.mean((nn.relu(x @ parameters["up"]) @ parameters["down"] - x) ** 2)


def normal(*shape: int) -> Any:
    return (_RNG.normal(size=shape) * 0.05).astype(np.float32)


def gpt(width: int = 256, heads: int = 4, layers: int = 2) -> Case:
    blocks = [
        {
            **{name: normal(width, heads, width // heads) for name in "qkv"},
            "o": normal(heads, width // heads, width),
            "up": normal(width, 4 * width),
            "down": normal(4 * width, width),
            "gain": np.ones(width, np.float32),
            "bias": np.zeros(width, np.float32),
        }
        for _ in range(layers)
    ]
    tokens = _RNG.integers(0, 512, (16, 129)).astype(np.int32)
    return Case(gpt_loss, {"table": normal(512, width), "blocks": blocks}, tokens, P(), P("x"))


def wide_mlp() -> Case:
    parameters = {"up": normal(1024, 4096), "down": normal(4096, 1024)}
    return Case(mlp_loss, parameters, normal(64, 1024), {"up": P(None, "x"), "down": P("x")}, P())


def simulated_seconds(sharded: ShardedProgram, rates: NetworkRates, one_rank_seconds: float) -> float:
    """Return the simulated time of a step, given the time of the unsharded step on one rank."""
    flops_per_second = 1e9
    for _ in range(2):
        model = CommunicationModel(rates.latency_seconds, rates.bytes_per_second, flops_per_second)
        report = report_sharding(sharded, model)
        seconds = report.compute_seconds + report.collective_seconds
        flops_per_second *= report.efficiency * sharded.mesh.size * seconds / one_rank_seconds
    return seconds


def main() -> None:
    """Print milliseconds per step."""
    world = MPI.COMM_WORLD
    if world.size == 1:
        raise SystemExit("expected at least two ranks: mpiexec -n 2 python -m mpi4py benchmarks/mesh_steps.py")
    mesh = dlc.make_mesh({"x": world.size})
    rates = measure_network(start(mesh))
    for name, case in (("GPT, data parallel", gpt()), ("wide MLP, tensor parallel", wide_mlp())):

        def step(parameters: Any, batch: Any) -> Any:
            value, gradients = dlc.value_and_grad(case.loss)(parameters, batch)  # noqa: B023
            return value, dlc.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients)

        specs = (case.specs, case.batch_spec)
        on_mesh = dlc.jit(mesh=mesh, in_shardings=specs, out_shardings=(P(), case.specs), num_threads=1)(step)
        alone = {threads: dlc.jit(num_threads=threads)(step) for threads in (1, world.size)}
        parameters = dlc.tree.map(lambda p: p, case.parameters)
        shards = on_mesh(parameters, case.batch)[1]
        shortest = {"mesh": float("inf"), 1: float("inf"), world.size: float("inf")}

        def timed(key: Any, function: Callable[..., Any], state: Any) -> None:
            begin = perf_counter()
            function(state, case.batch)  # noqa: B023
            shortest[key] = min(shortest[key], perf_counter() - begin)  # noqa: B023

        for _ in range(_ROUNDS):
            world.Barrier()
            timed("mesh", on_mesh, shards)
            if world.rank == 0:
                for threads, function in alone.items():
                    timed(threads, function, case.parameters)
                for other in range(1, world.size):
                    world.send(None, other)
            else:
                while not world.iprobe(source=0):
                    sleep(0.0005)
                world.recv(source=0)
        if world.rank == 0:
            sharded = on_mesh.lower(case.parameters, case.batch).sharded
            assert sharded is not None
            simulated = simulated_seconds(sharded, rates, shortest[1])
            ms = {key: 1e3 * seconds for key, seconds in shortest.items()}
            print(
                f"{name}: {world.size} ranks {ms['mesh']:.2f} ms, {world.size} threads {ms[world.size]:.2f}, one thread "
                f"{ms[1]:.2f}; ratio {ms['mesh'] / ms[world.size]:.2f}; simulated {1e3 * simulated:.2f}"
            )


main()
