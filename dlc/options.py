"""What a compilation is told, as one value; and the one place that reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex, cast

from dlc.errors import UnsupportedError
from dlc.machine.cpus import usable_cpus

# No system has more processors: what further threads were given they would only take from these.
MOST_THREADS = 8192
# What DLC_LOG can ask for.
LOGS = ("recompiles",)


@dataclass(frozen=True)
class Environment:
    """What the environment sets for every compilation of a process.

    `DLC_VERIFY=1` verifies the module after each pass; `DLC_WORKERS=N` bounds the processes that compile kernels (1: none
    but this one); `DLC_NUM_THREADS=N` is the number of threads of a model that is not told one. `DLC_CACHE=0` turns off the
    cache (cache.py), `DLC_CACHE_DIR` is its folder (`~/.cache/dlc`; no folder if there is no home), `DLC_CACHE_SIZE` its
    capacity (`500M`, `4G`, or bytes). `DLC_DEVICE=0:1` makes device 1 of platform 0 the one that the target `opencl` is.
    `DLC_CPU=avx2` takes this processor for one that has nothing beyond the target `cpu:avx2` (target.py).
    `DLC_LOG=recompiles` tells of whatever is compiled for other sizes or settings of a call. `DLC_JIT=0` computes functions as
    they are written, without the compiler (eager.py).
    """

    verify: bool = False
    workers: int | None = None
    num_threads: int | None = None
    cache: bool = True
    cache_folder: Path | None = None
    cache_bytes: int = 4 << 30
    device: str | None = None
    cpu: str | None = None
    log: frozenset[str] = frozenset()
    jit: bool = True

    @staticmethod
    def read(variables: Mapping[str, str] | None = None) -> Environment:
        """The settings that `variables` (the process's environment by default) hold; an empty one is not set.

        Raises UnsupportedError for a value that a variable does not take.
        """
        given = os.environ if variables is None else variables
        return Environment(
            verify=_switch(given, "DLC_VERIFY", False),
            workers=_count(given, "DLC_WORKERS"),
            num_threads=_count(given, "DLC_NUM_THREADS", MOST_THREADS),
            cache=_switch(given, "DLC_CACHE", True),
            cache_folder=_cache_folder(given),
            cache_bytes=_bytes(given, "DLC_CACHE_SIZE", Environment.cache_bytes),
            device=given.get("DLC_DEVICE") or None,
            cpu=given.get("DLC_CPU") or None,
            log=_words(given, "DLC_LOG", LOGS),
            jit=_switch(given, "DLC_JIT", True),
        )


def _switch(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name, "")
    if text not in ("", "0", "1"):
        raise UnsupportedError(f"{name}={text}: it takes 0 or 1")
    return text == "1" if text else default


def _words(given: Mapping[str, str], name: str, known: tuple[str, ...]) -> frozenset[str]:
    words = frozenset(given.get(name, "").replace(",", " ").split())
    if not words <= set(known):
        raise UnsupportedError(f"{name}={given[name]}: it takes {', '.join(known)}")
    return words


def _count(given: Mapping[str, str], name: str, most: int | None = None) -> int | None:
    text = given.get(name, "")
    if text and not (text.isdecimal() and int(text) > 0 and (most is None or int(text) <= most)):
        raise UnsupportedError(f"{name}={text}: it takes a number from 1 {'on' if most is None else f'to {most}'}")
    return int(text) if text else None


_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def _cache_folder(given: Mapping[str, str]) -> Path | None:
    if chosen := given.get("DLC_CACHE_DIR"):
        return Path(chosen).absolute()
    base = Path(given.get("XDG_CACHE_HOME") or Path(given.get("HOME", ""), ".cache"))
    # By its specification, a relative XDG_CACHE_HOME names no place.
    return base / "dlc" if base.is_absolute() else None


def _bytes(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, "")
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if text and not (number.isdecimal() and unit in _UNITS):
        raise UnsupportedError(f"{name}={text}: it takes a number of bytes, such as 500M or 4G")
    return int(number) << _UNITS[unit] if text else default


def _is_count(value: object) -> bool:
    return isinstance(value, SupportsIndex) and not isinstance(value, bool) and index(value) > 0


def thread_count(num_threads: int | None) -> int:
    """The threads that a call has which may have so many; None: one for each processor that this process may use.

    Raises UnsupportedError for what is no such number.
    """
    if num_threads is None:
        return usable_cpus()
    if not _is_count(num_threads) or num_threads > MOST_THREADS:
        raise UnsupportedError(f"num_threads {num_threads!r}: expected a whole number from 1 to {MOST_THREADS}")
    return num_threads


# How far results may be from those of the operations one by one.
NUMERICS = ("default", "strict")
# What contractions with weights round what they multiply to.
PRECISIONS = ("f32", "bf16", "f16")
# What large weights of products are kept as.
WEIGHTS = ("float", "int8", "int4")


@dataclass(frozen=True)
class Options:
    """How to compile.

    `pipeline` replaces the passes of the target (`"a,b{k=1}"`); `dump_ir` is a folder for the IR after every pass that
    changed something; `until` is the stage whose module the target `reference` runs (None: the module as imported); `verify`
    checks the module after each pass; `check_each_pass` checks what the module computes after each pass, when the model is
    first run, on the inputs of that run; `num_threads=None` takes every CPU that this process may
    use; `workers` bounds the processes that compile kernels; `cache` keeps what was compiled, and finds it again;
    `device` is where the target `opencl` is ("0:1"; None: the first device that works). `numerics` says how far results may
    be from those of the operations one by one: `default`, or `strict` (docs/numerics.md). `precision` is what contractions of
    f32 with weights round their operands to: `f32` (nothing), `bf16` or `f16`. `weights` is what large weights of products are
    kept as: `float` (what the model has), or integers `int8` or `int4`, with a scale for each `group` of them
    (docs/few_bits.md). `tune` is for how many seconds tile plans for a CPU are measured; 0: they are chosen by rules.
    """

    pipeline: str | None = None
    dump_ir: Path | None = None
    until: str | None = None
    verify: bool = field(default_factory=lambda: Environment.read().verify)
    num_threads: int | None = field(default_factory=lambda: Environment.read().num_threads)
    workers: int | None = field(default_factory=lambda: Environment.read().workers)
    cache: bool = field(default_factory=lambda: Environment.read().cache)
    check_each_pass: bool = False
    device: str | None = field(default_factory=lambda: Environment.read().device)
    numerics: str = "default"
    precision: str = "f32"
    weights: str = "float"
    group: int = 32
    tune: float = 0.0

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise UnsupportedError(f"numerics {self.numerics!r}: there are {' and '.join(NUMERICS)}")
        if self.precision not in PRECISIONS:
            raise UnsupportedError(f"precision {self.precision!r}: there are {', '.join(PRECISIONS)}")
        if self.weights not in WEIGHTS:
            raise UnsupportedError(f"weights {self.weights!r}: there are {', '.join(WEIGHTS)}")
        if not _is_count(self.group) or self.group % 8:
            raise UnsupportedError(f"group {self.group!r}: expected a multiple of 8 weights, such as 32")
        thread_count(self.num_threads)
        if self.workers is not None and not _is_count(self.workers):
            raise UnsupportedError(f"workers {self.workers!r}: expected a whole number from 1 on")
        if not isinstance(cast(object, self.tune), int | float) or not self.tune >= 0:
            raise UnsupportedError(f"tune {self.tune!r}: expected a number of seconds")

    @staticmethod
    def of(**given: Any) -> Options:
        """The options with these values; None leaves an option at its default."""
        return Options(**{name: value for name, value in given.items() if value is not None})


def pocl_folder(variables: Mapping[str, str] | None = None) -> Path:
    """Where PoCL (Portable Computing Language) keeps what it compiles."""
    given = os.environ if variables is None else variables
    if chosen := given.get("POCL_CACHE_DIR"):
        return Path(chosen).absolute()
    return Path(given.get("XDG_CACHE_HOME") or Path(given.get("HOME", "/"), ".cache"), "pocl", "kcache").absolute()


def columns() -> int | None:
    """How wide a person wants lines to be, by the variable COLUMNS."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else None
