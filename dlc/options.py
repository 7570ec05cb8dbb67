"""What a compilation is told, as one value; and the one place that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Environment:
    """What the environment sets for every compilation of a process.

    `DLC_VERIFY=1` verifies the module after each pass; `DLC_WORKERS=N` bounds the processes that compile kernels (1: none
    but this one); `DLC_NUM_THREADS=N` is the number of threads of a model that is not told one.
    """

    verify: bool = False
    workers: int | None = None
    num_threads: int | None = None

    @staticmethod
    def read(variables: Mapping[str, str] | None = None) -> Environment:
        """The settings that `variables` (the process's environment by default) hold."""
        given = os.environ if variables is None else variables

        def count(name: str) -> int | None:
            text = given.get(name, "")
            return max(1, int(text)) if text.isdecimal() else None

        return Environment(
            verify=given.get("DLC_VERIFY", "0") not in ("", "0"),
            workers=count("DLC_WORKERS"),
            num_threads=count("DLC_NUM_THREADS"),
        )


@dataclass(frozen=True)
class Options:
    """How to compile.

    `pipeline` replaces the passes of the target (`"a,b{k=1}"`); `dump_ir` is a folder for the IR after every pass that
    changed something; `until` is the stage whose module the target `reference` runs (None: the module as imported); `verify`
    checks the module after each pass; `num_threads=None` takes every CPU that this process may
    use; `workers` bounds the processes that compile kernels.
    """

    pipeline: str | None = None
    dump_ir: Path | None = None
    until: str | None = None
    verify: bool = field(default_factory=lambda: Environment.read().verify)
    num_threads: int | None = field(default_factory=lambda: Environment.read().num_threads)
    workers: int | None = field(default_factory=lambda: Environment.read().workers)

    @staticmethod
    def of(**given: Any) -> Options:
        """The options with these values; None leaves an option at its default."""
        return Options(**{name: value for name, value in given.items() if value is not None})
