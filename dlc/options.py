"""Compilation options; the only module that reads environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, SupportsIndex, TypedDict, cast

from dlc.errors import UnsupportedError
from dlc.files.atomic_writes import to_path
from dlc.machine.cpus import cpu_affinity, usable_cpus

# No system has more processors; more threads would only compete for them.
MAX_THREADS = 8192
# The topics of DLC_LOG.
LOG_TOPICS = ("recompiles", "inter_op")


@dataclass(frozen=True)
class Environment:
    """Settings from environment variables, for every compilation of a process.

    DLC_VERIFY=1        verify the module after each pass
    DLC_WORKERS=N       maximum number of processes that compile kernels (1: this process only)
    DLC_NUM_THREADS=N   default number of threads of a model
    DLC_CACHE=0         disable the cache (caching/cache.py)
    DLC_CACHE_DIR       the cache folder (default: `~/.cache/dlc`; no cache without a home directory)
    DLC_CACHE_SIZE      the capacity of the cache: bytes, `500M`, `4G`
    DLC_DEVICE=0:1      the device of the target `opencl`: platform 0, device 1
    DLC_CPU=avx2        restrict this processor to the features of the target `cpu:avx2` (target.py)
    DLC_LOG=recompiles  log every specialization for other sizes or settings of a call
    DLC_LOG=inter_op    log which kernels run concurrently, and the estimated times
    DLC_JIT=0           run functions eagerly, without the compiler (just_in_time/eager.py)
    DLC_PLUGINS=0       ignore the plug-ins of installed packages (plugins/registry.py)
    DLC_MEMORY_LIMIT    the maximum memory for intermediate results of one call on a CPU: bytes, `500M`, `4G`; 0: no limit
    DLC_COLLECTIVE_TIMEOUT=N  seconds that a rank waits for others in a collective before the job ends (default: 300)
    DLC_TOKEN           the token that clients of `dlc serve` must send
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
    plugins: bool = True
    memory_limit_bytes: int | None = None
    collective_timeout_seconds: int = 300
    token: str | None = field(default=None, repr=False)

    @staticmethod
    def read(variables: Mapping[str, str] | None = None) -> Environment:
        """Parse `variables`, by default the process's environment; empty variables count as unset.

        Raises UnsupportedError for an invalid value.
        """
        environment = os.environ if variables is None else variables
        return Environment(
            verify=_boolean(environment, "DLC_VERIFY", False),
            workers=_count(environment, "DLC_WORKERS"),
            num_threads=_count(environment, "DLC_NUM_THREADS", MAX_THREADS),
            cache=_boolean(environment, "DLC_CACHE", True),
            cache_folder=_cache_folder(environment),
            cache_bytes=_byte_count(environment, "DLC_CACHE_SIZE", Environment.cache_bytes),
            device=environment.get("DLC_DEVICE") or None,
            cpu=environment.get("DLC_CPU") or None,
            log=_topics(environment, "DLC_LOG", LOG_TOPICS),
            jit=_boolean(environment, "DLC_JIT", True),
            plugins=_boolean(environment, "DLC_PLUGINS", True),
            memory_limit_bytes=_byte_count(environment, "DLC_MEMORY_LIMIT", 0) or None,
            collective_timeout_seconds=_count(environment, "DLC_COLLECTIVE_TIMEOUT") or Environment.collective_timeout_seconds,
            token=environment.get("DLC_TOKEN") or None,
        )


def use_one_blas_thread() -> None:
    """Keep NumPy's OpenBLAS from starting a thread per processor when it is imported, unless the environment asks for it.

    These threads spin for 30 ms, and delay the first result of a program that has its own threads.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _boolean(environment: Mapping[str, str], name: str, default: bool) -> bool:
    text = environment.get(name, "")
    if text not in ("", "0", "1"):
        raise UnsupportedError(f"{name}={text}: expected 0 or 1")
    return text == "1" if text else default


def _topics(environment: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> frozenset[str]:
    words = frozenset(environment.get(name, "").replace(",", " ").split())
    if not words <= set(allowed):
        raise UnsupportedError(f"{name}={environment[name]}: expected {', '.join(allowed)}")
    return words


def _count(environment: Mapping[str, str], name: str, maximum: int | None = None) -> int | None:
    text = environment.get(name, "")
    if text and not (text.isdecimal() and int(text) > 0 and (maximum is None or int(text) <= maximum)):
        raise UnsupportedError(f"{name}={text}: expected an integer {'>= 1' if maximum is None else f'from 1 to {maximum}'}")
    return int(text) if text else None


_SIZE_UNIT_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def _cache_folder(environment: Mapping[str, str]) -> Path | None:
    if folder := environment.get("DLC_CACHE_DIR"):
        return Path(folder).absolute()
    base = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", ""), ".cache"))
    # By its specification, a relative XDG_CACHE_HOME is invalid and must be ignored.
    return base / "dlc" if base.is_absolute() else None


def _byte_count(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if text and not (digits.isdecimal() and unit in _SIZE_UNIT_SHIFTS):
        raise UnsupportedError(f"{name}={text}: expected a number of bytes, such as 500M or 4G")
    return int(digits) << _SIZE_UNIT_SHIFTS[unit] if text else default


def is_count(value: object) -> bool:
    """Return whether a value is an integer >= 1, and no boolean."""
    return isinstance(value, SupportsIndex) and not isinstance(value, bool) and index(value) > 0


def thread_count(num_threads: int | None) -> int:
    """Return the number of threads of a call; None means one per processor that this process may use.

    Raises UnsupportedError for an invalid number.
    """
    if num_threads is None:
        return usable_cpus()
    if not is_count(num_threads) or num_threads > MAX_THREADS:
        raise UnsupportedError(f"num_threads {num_threads!r}: expected an integer from 1 to {MAX_THREADS}")
    return num_threads


# `default` allows optimizations that change rounding, `strict` does not (docs/numerics.md).
NUMERICS = ("default", "strict")
# The dtype to which contractions with weights round their operands.
PRECISIONS = ("f32", "bf16", "f16")
# The storage format of large weights of matrix products.
WEIGHTS = ("float", "int8", "int4")
# Whether independent kernels run concurrently (docs/concurrency.md).
INTER_OP_MODES = ("auto", "on", "off")


class CompileOptions(TypedDict, total=False):
    """Options by keyword of the functions that compile: `compile_model`, `jit`, `from_torch` and `from_jax`.

    Attributes:
        num_threads: Number of threads; by default one per processor that this process may use.
        streams: Number of submitted calls that run at once, each with its share of the threads (docs/concurrency.md).
        cpus: The processors on which the threads run, such as `range(4)`; by default those of the process.
        dump_ir: A folder for the IR after every pass that changed something.
        pipeline: Passes to run instead of the target's, such as `"a,b{k=1}"`.
        check_each_pass: Verify the results of every pass during the first call, on its arguments. CompileError names the first
            pass after which results are wrong, the kernel or op, and the nodes or lines that it comes from.
        cache: Store compiled programs in the cache, and load them from it, keyed by the content of the model or the IR of the
            function; by default True unless DLC_CACHE=0.
        numerics: `"default"`, or `"strict"`: every operation is rounded as it is written (docs/numerics.md).
        precision: The dtype to which f32 contractions with weights round their operands (docs/numerics.md): `"f32"` (no
            rounding), `"bf16"` or `"f16"`. The weights of a function are the arrays that it closes over, not its arguments.
        weights: The storage format of the large weights of matrix products: `"float"` (as in the model), `"int8"` or `"int4"`:
            less memory, different results (docs/weight_only_quantization.md).
        group: The number of quantized weights that share a scale, a multiple of 8.
        tune: Seconds to spend on measuring tile plans for a CPU; results are cached. 0: use the cost model only.
        inter_op: Whether independent kernels that are too small to use all threads run concurrently on a CPU: `"auto"` (if the
            cost model expects a gain), `"on"` or `"off"` (docs/concurrency.md).
    """

    num_threads: int | None
    streams: int
    cpus: Iterable[int] | None
    dump_ir: str | PathLike[str] | None
    pipeline: str | None
    check_each_pass: bool
    cache: bool | None
    numerics: str
    precision: str
    weights: str
    group: int
    tune: float
    inter_op: str


@dataclass(frozen=True)
class Options:
    """The options of a compilation: those of `CompileOptions`, with the same meaning, and internal ones.

    Attributes:
        until: The stage whose module the target `reference` runs (None: the imported module).
        verify: Verify the module after each pass.
        workers: Maximum number of processes that compile kernels.
        device: The device of the target `opencl`, such as "0:1"; None: the first one that works.
        replaced_kernels: Files with kernels that replace those with these names (docs/edit_kernels.md).
        plan: A file of tile plans to use.
        write_plan: A file to which the tile plans are written.
    """

    pipeline: str | None = None
    dump_ir: Path | None = None
    until: str | None = None
    verify: bool = field(default_factory=lambda: Environment.read().verify)
    num_threads: int | None = field(default_factory=lambda: Environment.read().num_threads)
    streams: int = 1
    cpus: frozenset[int] | None = None
    workers: int | None = field(default_factory=lambda: Environment.read().workers)
    cache: bool = field(default_factory=lambda: Environment.read().cache)
    check_each_pass: bool = False
    device: str | None = field(default_factory=lambda: Environment.read().device)
    numerics: str = "default"
    precision: str = "f32"
    weights: str = "float"
    group: int = 32
    tune: float = 0.0
    replaced_kernels: Mapping[str, Path] = field(default_factory=dict[str, Path], hash=False)
    plan: Path | None = None
    write_plan: Path | None = None
    inter_op: str = "auto"

    def __post_init__(self) -> None:
        if self.numerics not in NUMERICS:
            raise UnsupportedError(f"numerics {self.numerics!r}: expected {' or '.join(NUMERICS)}")
        if self.precision not in PRECISIONS:
            raise UnsupportedError(f"precision {self.precision!r}: expected one of {', '.join(PRECISIONS)}")
        if self.weights not in WEIGHTS:
            raise UnsupportedError(f"weights {self.weights!r}: expected one of {', '.join(WEIGHTS)}")
        if self.inter_op not in INTER_OP_MODES:
            raise UnsupportedError(f"inter_op {self.inter_op!r}: expected one of {', '.join(INTER_OP_MODES)}")
        if not isinstance(cast(object, self.pipeline), str | None):
            raise UnsupportedError(f'pipeline {self.pipeline!r}: expected names of passes, such as "a,b{{k=1}}"')
        for name in ("cache", "check_each_pass", "verify"):
            if (value := getattr(self, name)) not in (False, True):
                raise UnsupportedError(f"{name} {value!r}: expected True or False")
        if not is_count(self.group) or self.group % 8:
            raise UnsupportedError(f"group {self.group!r}: expected a multiple of 8 weights, such as 32")
        thread_count(self.num_threads)
        if not is_count(self.streams) or self.streams > MAX_THREADS:
            raise UnsupportedError(f"streams {self.streams!r}: expected an integer from 1 to {MAX_THREADS}")
        if self.cpus is not None:
            processors(self.cpus)
        if self.workers is not None and not is_count(self.workers):
            raise UnsupportedError(f"workers {self.workers!r}: expected an integer >= 1")
        if not isinstance(cast(object, self.tune), int | float) or not self.tune >= 0:
            raise UnsupportedError(f"tune {self.tune!r}: expected a number of seconds >= 0")

    @staticmethod
    def from_keywords(function: str, keywords: CompileOptions) -> Options:
        """Return the options that a user passed to `function` by keyword. Raises TypeError for an unknown keyword."""
        for name in keywords.keys() - CompileOptions.__annotations__.keys():
            close = get_close_matches(name, CompileOptions.__annotations__, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")
        return Options.of(**keywords)

    @staticmethod
    def of(**values: Any) -> Options:
        """Return options with these values; None leaves an option at its default.

        By default, each stream has an equal share of the threads, of which there is one per processor of `cpus`.
        """
        given = {name: value for name, value in values.items() if value is not None}
        if "cpus" in given:
            given["cpus"] = processors(given["cpus"])
        if "dump_ir" in given:
            given["dump_ir"] = to_path(given["dump_ir"])
        options = Options(**given)
        if "num_threads" in given or (options.streams == 1 and options.cpus is None):
            return options
        threads = thread_count(options.num_threads)
        threads = threads if options.cpus is None else min(threads, len(options.cpus))
        return replace(options, num_threads=max(1, threads // options.streams))


def processors(values: Iterable[int]) -> frozenset[int]:
    """Return the numbers of processors as a set. Raises UnsupportedError unless this process may use all of them."""
    try:
        numbers = frozenset(index(value) for value in values)
    except TypeError:
        raise UnsupportedError(f"cpus {values!r}: expected the numbers of processors, such as [0, 1]") from None
    available = cpu_affinity()
    if not numbers or not numbers <= available:
        raise UnsupportedError(
            f"cpus {sorted(numbers)}: expected one or more of the processors {sorted(available)}, and no others"
        )
    return numbers


def pocl_folder() -> Path:
    """Return the folder in which PoCL (Portable Computing Language) caches compiled kernels."""
    if folder := os.environ.get("POCL_CACHE_DIR"):
        return Path(folder).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/"), ".cache"), "pocl", "kcache").absolute()


def columns() -> int | None:
    """Return the line width that the variable COLUMNS requests; None if it does not."""
    environment = os.environ.get("COLUMNS", "")
    return int(environment) if environment.isdecimal() and int(environment) > 0 else None
