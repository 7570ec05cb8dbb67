"""Decide which launches of a host program run concurrently, from their dependences and costs.

    a → b → c ─┐
               ├→ f      sections {a, b, c} and {d, e}, then f
    d → e ─────┘

Launches are grouped greedily in topological order. A launch joins the section of the launches that it depends on; one that
depends on several sections starts the next group, since it must wait for all of them. A group runs in sections if that is
faster than running its launches in sequence, each on all threads.

Long launches use all threads well, and sections with such launches have unequal times. So the launches above a threshold run
alone, on all threads, and the others in sections between them; the threshold minimizes the estimated time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dlc.cost_model import SectionCosts
from dlc.ir import SSAValue
from dlc.shapes.dims import Size, is_static

# A gain below this is within the error of the cost model.
_MIN_SPEEDUP_RATIO = 1.1
# The maximum number of thresholds that are compared, since grouping takes quadratic time.
_MAX_THRESHOLD_CANDIDATES = 16
# Numbers of threads for which a group is assessed.
_THREAD_COUNTS = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Access:
    """An access of a launch: bytes `start` to `stop` of a buffer, which is None if it is unknown."""

    root: SSAValue | None
    start: Size
    stop: Size
    writes: bool

    def conflicts_with(self, other: Access) -> bool:
        """Return whether the order of two accesses matters; True unless they provably do not overlap."""
        if not (self.writes or other.writes):
            return False
        if self.root is None or other.root is None:
            return True
        if self.root is not other.root:
            return False
        if not is_static((self.start, self.stop, other.start, other.stop)):
            return True
        return int(self.start) < int(other.stop) and int(other.start) < int(self.stop)


@dataclass(frozen=True)
class LaunchCost:
    """The accesses and the cost of a launch.

    Attributes:
        bytes: The size of all arguments.
        flops: The floating-point operations of its contractions.
        is_parallel: Whether it uses several threads when it runs alone.
    """

    accesses: tuple[Access, ...]
    bytes: int
    flops: int
    is_parallel: bool

    def seconds(self, costs: SectionCosts, threads: int = 1) -> float:
        """Return the estimated time on a number of threads."""
        work = max(self.flops / costs.flops_per_second, self.bytes / costs.bytes_per_second)
        if threads == 1 or not self.is_parallel:
            return costs.launch_seconds + work
        return costs.launch_seconds + costs.fork_join_seconds + work / threads

    def conflicts_with(self, other: LaunchCost) -> bool:
        return any(a.conflicts_with(b) for a in self.accesses for b in other.accesses)


@dataclass
class Group:
    """Launches by index, in sections; a group with one section runs in sequence.

    Attributes:
        max_threads: The largest number of threads for which the sections are faster than all threads on each launch.
        seconds: The estimated time on two threads.
        reason: The estimated times, as text.
    """

    sections: list[list[int]] = field(default_factory=list[list[int]])
    max_threads: int = 0
    seconds: float = 0.0
    reason: str = ""

    @property
    def launches(self) -> list[int]:
        """All launches, in program order."""
        return sorted(k for section in self.sections for k in section)


def choose_groups(launches: Sequence[LaunchCost], costs: SectionCosts, *, always: bool = False) -> list[Group]:
    """Return the schedule of a sequence of launches; with `always`, all independent launches run in sections.

    The launches of one group depend on earlier groups and on launches of their section only.
    """
    predecessors = find_predecessors(launches)
    schedule: list[Group] = []
    for group in _groups(range(len(launches)), predecessors, set()):
        _assess(group, launches, costs, always)
        if len(group.sections) == 1 or always:
            schedule.append(group)
            continue
        candidates = [[group], *_partitions(group, launches, predecessors, costs)]
        best = min(candidates, key=lambda parts: sum(part.seconds for part in parts))
        schedule += best if any(part.max_threads for part in best) else [Group([group.launches], reason=group.reason)]
    return schedule


def _partitions(
    group: Group, launches: Sequence[LaunchCost], predecessors: Sequence[set[int]], costs: SectionCosts
) -> Iterator[list[Group]]:
    """Yield partitions of a group in which the launches above a threshold run alone."""
    seconds = {k: launches[k].seconds(costs) for k in group.launches if launches[k].is_parallel}
    thresholds = sorted({*seconds.values()}, reverse=True)
    for threshold in thresholds[:: -(-len(thresholds) // _MAX_THRESHOLD_CANDIDATES) or 1]:
        parts = _groups(group.launches, predecessors, {k for k, time in seconds.items() if time >= threshold})
        for part in parts:
            _assess(part, launches, costs, always=False)
        yield parts


def find_predecessors(launches: Sequence[LaunchCost]) -> list[set[int]]:
    """Return the earlier launches that each launch must follow."""
    result: list[set[int]] = []
    accesses: dict[SSAValue | None, list[tuple[int, Access]]] = {}
    writes: dict[SSAValue | None, list[tuple[int, Access]]] = {}
    for k, launch in enumerate(launches):
        before = set[int]()
        for access in launch.accesses:
            earlier = accesses if access.writes else writes
            # An unknown buffer may be any buffer.
            roots = [*earlier] if access.root is None else [access.root, None]
            before |= {j for root in roots for j, other in earlier.get(root, ()) if access.conflicts_with(other)}
        for access in launch.accesses:
            accesses.setdefault(access.root, []).append((k, access))
            if access.writes:
                writes.setdefault(access.root, []).append((k, access))
        result.append(before)
    return result


def _groups(order: Sequence[int], predecessors: Sequence[set[int]], alone: set[int]) -> list[Group]:
    """Partition launches into groups of independent sections; those in `alone` are groups by themselves."""
    inside, remaining, groups = set(order), [*order], list[Group]()
    done = set[int]()
    while remaining:
        unfinished = inside - done
        ready = [k for k in remaining if not predecessors[k] & unfinished]
        first = next((k for k in ready if k in alone), ready[0] if len(ready) == 1 else None)
        # A single ready launch, such as the common producer of several branches, would pull all of them into its section.
        group = Group([[first]]) if first is not None else _independent_sections(remaining, predecessors, unfinished, alone)
        done.update(group.launches)
        remaining = [k for k in remaining if k not in done]
        groups.append(group)
    return groups


def _independent_sections(
    remaining: Sequence[int], predecessors: Sequence[set[int]], unfinished: set[int], alone: set[int]
) -> Group:
    """Return the largest group of sections in which no launch depends on several of them."""
    group, section_of, pending = Group(), dict[int, int](), [*remaining]
    while True:
        rest: list[int] = []
        for k in pending:
            before = predecessors[k] & unfinished
            sections = {section_of.get(j, -1) for j in before}
            if k in alone or len(sections) > 1 or -1 in sections:
                rest.append(k)
                continue
            section_of[k] = sections.pop() if sections else len(group.sections)
            if section_of[k] == len(group.sections):
                group.sections.append([])
            group.sections[section_of[k]].append(k)
        if len(rest) == len(pending):
            return group
        pending = rest


def _assess(group: Group, launches: Sequence[LaunchCost], costs: SectionCosts, always: bool) -> None:
    """Set the maximum number of threads for which the sections of a group are profitable, and the estimated time."""
    group.seconds = sum(launches[k].seconds(costs, _THREAD_COUNTS[0]) for k in group.launches)
    if len(group.sections) < 2:
        return
    seconds = [sum(launches[k].seconds(costs) for k in section) for section in group.sections]
    # The longest section first: threads take them in order.
    group.sections = [
        section for _, section in sorted(zip(seconds, group.sections, strict=True), key=lambda p: (-p[0], p[1][0]))
    ]
    for threads in _THREAD_COUNTS:
        sequential = sum(launches[k].seconds(costs, threads) for k in group.launches)
        loads = [0.0] * threads
        for time in sorted(seconds, reverse=True):
            loads[loads.index(min(loads))] += time
        parallel = costs.fork_join_seconds + max(loads)
        if threads == _THREAD_COUNTS[0]:
            group.reason = (
                f"{len(group.sections)} sections take about {parallel * 1e6:.1f} us on {threads} threads, "
                f"their {len(group.launches)} launches in sequence {sequential * 1e6:.1f} us"
            )
        if not always and sequential < _MIN_SPEEDUP_RATIO * parallel:
            return
        if threads == _THREAD_COUNTS[0]:
            group.seconds = parallel
        group.max_threads = threads
    group.max_threads = 1 << 30
