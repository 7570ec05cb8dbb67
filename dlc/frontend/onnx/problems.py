"""What a model asks for that dlc does not support: found node by node, reported all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.errors import UnsupportedError


@dataclass(frozen=True)
class Problem:
    """One unsupported thing: `place` names the node or tensor, `kind` is what about it.

    Kinds: "operator", "opset", "attribute", "dtype", "input", "output", "value".
    """

    place: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.kind}: {self.message}"


class NodeProblem(Exception):
    """Raised where a node turns out to be unsupported; the importer notes it and goes on with the next node."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def unsupported(model: str, problems: Sequence[Problem]) -> UnsupportedError:
    """The error that lists every problem, one line each."""
    count = "1 thing" if len(problems) == 1 else f"{len(problems)} things"
    lines = [str(p) for p in problems]
    return UnsupportedError("\n  ".join([f"{model}: {count} in this model that dlc does not support:", *lines]), lines)
