"""All checks of the samples of a plug-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from dlc.dialects.dl.interfaces import Composite, DataDependent, DataMovement, Elementwise, GatherLike, Reduction
from dlc.passes.autodiff.rules import NO_DERIVATIVE
from dlc.passes.batching.expand_vmap import NO_BATCHING
from dlc.testing.batching_checks import check_batching, check_batching_on_target, check_small_batch
from dlc.testing.body_checks import check_combination, check_gather_body, check_scalar_body, check_source_map
from dlc.testing.derivative_checks import check_forward_mode, check_reverse_mode, has_float_operands, point_of
from dlc.testing.op_checks import (
    check_decomposition,
    check_dynamic_shapes,
    check_reference,
    check_round_trip,
    check_symbolic_sizes,
    check_target,
    check_verifier,
)
from dlc.testing.random_programs import check_random_program
from dlc.testing.sample import Sample

# Per sample and target.
_NUM_RANDOM_PROGRAMS = 3


@dataclass(frozen=True)
class SampleCheck:
    """A test derived from a sample: `run` raises an exception if it fails."""

    name: str
    sample: Sample
    run: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.name}[{self.sample.name}]"


def checks_of(samples: Sequence[Sample], targets: Sequence[str]) -> Iterator[SampleCheck]:
    """Yield the checks of samples on these targets: the checks of built-in ops."""
    for sample in samples:
        for name, run in _checks_of(sample, targets):
            yield SampleCheck(name, sample, run)


def _checks_of(sample: Sample, targets: Sequence[str]) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "round trip", partial(check_round_trip, sample)
    yield "verifier", partial(check_verifier, sample)
    yield "reference", partial(check_reference, sample)
    for interface, name, check in (
        (Elementwise, "scalar body", check_scalar_body),
        (GatherLike, "gather body", check_gather_body),
        (DataMovement, "source map", check_source_map),
        (Reduction, "combination", check_combination),
        (Composite, "decomposition", check_decomposition),
    ):
        if issubclass(sample.op, interface):
            yield name, partial(check, sample)
    has_symbols = any(n > 1 for x in sample.operands for n in x.shape)
    if has_symbols and not sample.static_sizes:
        yield "symbolic sizes", partial(check_symbolic_sizes, sample)
    for target in targets:
        yield f"results on {target}", partial(check_target, sample, target)
        if has_symbols and not sample.static_sizes:
            yield f"dynamic shapes on {target}", partial(check_dynamic_shapes, sample, target)
    if sample.operands and not issubclass(sample.op, DataDependent) and sample.op not in NO_BATCHING:
        yield "batching", partial(check_batching, sample)
        for count in (0, 1):
            yield f"batch of {count}", partial(check_small_batch, sample, count)
        for target in targets:
            if target != "reference":
                yield f"batching on {target}", partial(check_batching_on_target, sample, target)
    for target in targets:
        if sample.operands and target != "reference":
            for seed in range(_NUM_RANDOM_PROGRAMS):
                yield f"random program {seed} on {target}", partial(check_random_program, sample, seed, target)
    if has_float_operands(sample) and sample.op not in NO_DERIVATIVE:
        yield "forward mode", lambda: check_forward_mode(point_of(sample, *sample.smooth_interval))
        yield "reverse mode", lambda: check_reverse_mode(point_of(sample, *sample.smooth_interval))
