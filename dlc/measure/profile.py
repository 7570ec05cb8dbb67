"""Profile a call of a model: time per kernel, memory and compile time; as text, HTML, JSON or plain values."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.errors import UnsupportedError
from dlc.measure.kernel_times import KernelTime, measure
from dlc.options import thread_count
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.model import Model
from dlc.runtime.models.specialized_model import SpecializedModel

_BAR_WIDTH_CHARACTERS = 16
_MAX_PRINTED_KERNELS = 20
_MAX_PRINTED_ORIGINS = 3


@dataclass(frozen=True)
class Profile:
    """The profile of a call: `seconds` is the median of a few runs; kernels are sorted by descending time.

    `weight_bytes` is the memory of the weights, `arena_bytes` that of intermediate buffers (None if the sizes are dynamic).
    `phases` are the seconds per compilation phase, if this process compiled the model. `compilations` is the number of times
    that a jitted function has been compiled, for different structures, shapes, dtypes or static arguments.
    """

    name: str
    threads: int
    seconds: float
    kernels: tuple[KernelTime, ...]
    arena_bytes: int | None
    weight_bytes: int
    phases: Mapping[str, float]
    compilations: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the profile as plain values."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the profile as JSON."""
        return json.dumps(self.as_dict(), indent=1)

    def __str__(self) -> str:
        longest = max((k.seconds for k in self.kernels), default=0.0) or 1.0
        printed_kernels = self.kernels[:_MAX_PRINTED_KERNELS]
        width, origins_width = (
            max(map(len, texts), default=0)
            for texts in ([k.name for k in printed_kernels], [*map(_origins_text, printed_kernels)])
        )
        lines = [f"{self.name}: {time_text(self.seconds)} a call, {self.threads} threads"]
        for k in printed_kernels:
            bar = "█" * max(1, round(_BAR_WIDTH_CHARACTERS * k.seconds / longest))
            share, limit = self._share(k), f"{_share_of_limit(k):4.0%} of the limit"
            time_columns = f"{k.runs:4d} × {time_text(k.seconds):>9} {share:6.1%} {limit}"
            lines.append(f"  {k.name:{width}} {time_columns}  {_origins_text(k):{origins_width}}  {bar}")
        if (more := len(self.kernels) - _MAX_PRINTED_KERNELS) > 0:
            lines.append(f"  and {more} more")
        lines.append(", ".join(f"{name} {_bytes(size)}" for name, size in self._memory()))
        if self.phases:
            lines.append("compiled: " + ", ".join(f"{name} {time_text(seconds)}" for name, seconds in self.phases.items()))
        if self.compilations:
            kinds = "one kind" if self.compilations == 1 else f"{self.compilations} kinds"
            lines.append(f"calls so far: compiled for {kinds} of arguments")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        longest = max((k.seconds for k in self.kernels), default=0.0) or 1.0
        rows = "".join(
            f"<tr><td>{html.escape(k.name)}</td><td>{html.escape(_origins_text(k))}</td><td>{k.runs}</td><td>{time_text(k.seconds)}</td><td>{self._share(k):.1%}</td>"
            f"<td>{_share_of_limit(k):.0%}</td><td style='text-align:left'><div style='background:#1f6f8b;height:9px;width:"
            f"{160 * k.seconds / longest:.0f}px'></div></td></tr>"
            for k in self.kernels
        )
        memory = ", ".join(f"{name} {_bytes(size)}" for name, size in self._memory())
        heads = "".join(f"<th>{name}</th>" for name in ("kernel", "of", "runs", "time", "share", "of limit", ""))
        return (
            f"<b>{html.escape(self.name)}</b>: {time_text(self.seconds)} a call, {self.threads} threads; {memory}"
            f"<table><tr>{heads}</tr>{rows}</table>"
        )

    def _share(self, kernel: KernelTime) -> float:
        return kernel.seconds / (sum(k.seconds for k in self.kernels) or 1.0)

    def _memory(self) -> list[tuple[str, int]]:
        return [("weights", self.weight_bytes), *([("arena", self.arena_bytes)] if self.arena_bytes is not None else [])]


def profile(model: Model, inputs: Sequence[NDArray[Any]], phases: Mapping[str, float]) -> Profile:
    """Profile a call of a model on inputs that have been checked.

    Raises UnsupportedError for a call that does not run one program on a CPU.
    """
    artifact = model.artifact
    while isinstance(artifact, SpecializedModel):
        specialization, inputs = artifact.select(inputs)
        artifact = specialization.artifact
    if not isinstance(artifact, Artifact):
        raise UnsupportedError(f"{model.name}: only programs for a CPU can be profiled; use explore(…) for other models")
    measurement = measure(artifact, inputs, thread_count(model.num_threads))
    arena = None if artifact.host.symbols else artifact.host.arena_bytes
    weights = sum(_size(info) for info in artifact.host.weights)
    return Profile(
        model.name, measurement.threads, measurement.seconds, tuple(measurement.kernels), arena, weights, dict(phases)
    )


def _size(info: TensorInfo) -> int:
    return prod(int(size) for size in info.shape) * info.dtype.itemsize


def _origins_text(kernel: KernelTime) -> str:
    """Return the origins of a kernel as text: lines of Python by file name, or nodes."""
    names = [origin.rpartition("/")[2] if ".py:" in origin else origin for origin in kernel.origins]
    return ", ".join(names[:_MAX_PRINTED_ORIGINS]) + (
        f" and {more} more" if (more := len(names) - _MAX_PRINTED_ORIGINS) > 0 else ""
    )


def _share_of_limit(kernel: KernelTime) -> float:
    """Return the fraction of the peak rate; limited to 1, since the limit is measured."""
    return min(1.0, kernel.min_seconds / kernel.seconds) if kernel.seconds else 0.0


def time_text(seconds: float) -> str:
    """Format seconds with a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _bytes(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GB"
