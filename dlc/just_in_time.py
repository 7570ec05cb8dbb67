"""`@dlc.jit`: a Python function, compiled for the shapes and dtypes it is called with."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any, overload

import numpy as np

import dlc.numpy
from dlc.arrays import given_array, is_lent, require_unmasked
from dlc.backends.base import Backend
from dlc.backends.registry import backend_of
from dlc.compiler import Program, compile, emit
from dlc.dims import parse, parse_ranged
from dlc.eager import EagerTrace, is_jit_disabled
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.explore import Page, explore
from dlc.frontend.donation import donate
from dlc.frontend.pytree import (
    ARRAYS,
    Tree,
    argument_names,
    flatten,
    is_array_like,
    require_array_like,
    tree_of_arrays,
    unflatten,
)
from dlc.frontend.trace import OpenSize, Trace, Traced, Tracer, is_number, trace
from dlc.instrument.report import Report
from dlc.measure.profile import Profile, profile
from dlc.options import Environment, Options
from dlc.runtime.kept import MOST
from dlc.runtime.model import Model, as_result, require_fitting, require_on_cpu
from dlc.runtime.opencl.array import DeviceArray
from dlc.runtime.recompilations import Recompilations

# Imported for what it does: it gives traced arrays their operators.
_operators = dlc.numpy


@dataclass(frozen=True)
class Lowered:
    """A function traced for some arguments, to be looked at: `predict.lower(x).as_text("linalg")`; `leaves` are of these."""

    program: Program
    leaves: Sequence[Any]
    results: Tree
    target: str | Backend
    options: Options

    def as_text(self, stage: str = "dl") -> str:
        """The IR at the end of a stage: dl, fusion, linalg, tiling or loops; or the kernels as llvm or asm."""
        return emit(self.program, stage, self.target, self.options)

    def compile(self) -> Model:
        """The program as a model, its inputs and outputs named by their places in the arguments and the result."""
        return compile(self.program, self.target, self.options)


@dataclass(frozen=True)
class _Compiled:
    model: Model
    results: Tree


class JitFunction:
    """A function that is traced and compiled once per structure, shapes and dtypes of its arguments and static values.

    Arguments are arrays, numbers, and nested tuples, lists, dicts and dataclasses of them; numbers take the dtype of the
    arrays they meet. Results are arrays in the containers that the function returns.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        target: str | Backend,
        options: Options,
        static_argnames: Sequence[str] = (),
        dynamic: Mapping[str, Mapping[int, str]] | None = None,
        donate_argnames: Sequence[str] = (),
        static_argnums: Sequence[int] = (),
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._target = target
        self._options = options
        self._signature = inspect.signature(function)
        self._static = frozenset(static_argnames) | self._named(static_argnums)
        self._donated = frozenset(donate_argnames)
        for kind, argnames in (("static", self._static), ("donate", self._donated)):
            if unknown := argnames - set(self._signature.parameters):
                raise DTypeError(f"jit: {kind}_argnames {sorted(unknown)} are no arguments of {self._name}{self._signature}")
        if self._donated and (dynamic or self._donated & self._static):
            raise DTypeError(f"jit: donate_argnames {sorted(self._donated)}: neither settings, nor beside dynamic sizes")
        named = (dynamic or {}).items()
        self._dynamic = {name: {axis: _open_size(size) for axis, size in axes.items()} for name, axes in named}
        # For each structure of arguments, which sizes of its leaves are open.
        self._open: dict[Tree, tuple[Mapping[int, OpenSize], ...]] = {}
        # What was compiled first makes room for new ones.
        self._compiled: dict[Hashable, _Compiled] = {}
        advice = "leave sizes that change open (jit's `dynamic`), and take settings that change as arrays"
        self._recompilations = Recompilations(self._name, advice)
        # What is traced for each set of shapes by itself although sizes of it are open.
        self._by_shape: set[Hashable] = set()
        self._lock = Lock()
        self._eager = not Environment.read().jit

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result; compiles first if these shapes, dtypes and static values are new."""
        if not kwargs and all([type(a) in ARRAYS for a in args]):
            # What was compiled for nothing but these arrays is found at once.
            compiled = self._compiled.get((tree_of_arrays(len(args)), tuple([(a.shape, a.dtype) for a in args])))
            if compiled is not None and not is_jit_disabled(self._eager):
                return unflatten(compiled.results, map(as_result, compiled.model.run(args)))
        given = args, kwargs
        args, kwargs, static = self._split(args, kwargs)
        leaves, tree = flatten((args, kwargs))
        arrays, kinds = leaves, ()
        if all([type(leaf) in ARRAYS and leaf.dtype.isnative for leaf in leaves]):
            kinds = tuple([(leaf.shape, leaf.dtype) for leaf in leaves])
        elif any([type(leaf) is Tracer for leaf in leaves]):
            # Called while another function is traced: it becomes part of that one.
            return self._function(*given[0], **given[1])
        else:
            leaves = self._checked(leaves, tree)
            arrays = [self._native(leaf) for leaf in leaves]
            weak = [("weak",) if is_number(leaf) else () for leaf in leaves]
            kinds = tuple([(a.shape, a.dtype, *w) for a, w in zip(arrays, weak, strict=True)])
        if is_jit_disabled(self._eager):
            return self._computed(arrays, leaves, tree, static)
        if self._dynamic:
            open_ = self._open_sizes(tree)
            kinds = tuple([(_closed(shape, axes), *rest) for (shape, *rest), axes in zip(kinds, open_, strict=True)])
        # 1 and True are equal, and not the same setting.
        key = (tree, kinds, static, tuple([type(value) for _, value in static])) if static else (tree, kinds)
        compiled = self._compiled.get(key)
        if compiled is None:
            with self._lock:
                compiled = self._made(key, leaves, tree, static, tuple([a.shape for a in arrays]))
        if self._dynamic:
            require_fitting(self._name, compiled.model.inputs, arrays)
        return unflatten(compiled.results, map(as_result, compiled.model.run(arrays)))

    def __reduce__(self) -> str:
        """Pickled by its name, as functions are: it is compiled where it is called."""
        return getattr(self._function, "__qualname__", self._name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The function traced for arguments like these; only shapes, dtypes and static values matter.

        A `dlc.ShapeDtype` may stand in an array's place.
        """
        args, kwargs, static = self._split(args, kwargs)
        leaves, tree = flatten((args, kwargs))
        return self._lower(leaves, tree, static, self._open_sizes(tree))

    def explore(self, *args: Any, **kwargs: Any) -> Page:
        """A page of what the compiler made of the function for these arguments, measured on them.

        A notebook shows it, `.save("page.html")` writes it; dlc/explore says what it has.
        """
        lowered = self.lower(*args, **kwargs)
        arrays = [self._native(leaf) for leaf in lowered.leaves]
        options = replace(self._options, dump_ir=None)
        return explore(lowered.program, self._target, options, inputs=arrays)

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """What a call with these arguments takes: kernels, time and memory, and what compiling it took."""
        lowered, report = self.lower(*args, **kwargs), Report()
        model = compile(lowered.program, self._target, replace(self._options, dump_ir=None), report=report)
        found = profile(model, [self._native(leaf) for leaf in lowered.leaves], report.phases)
        return replace(found, compilations=len(self._compiled))

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", "function")

    def _named(self, argnums: Sequence[int]) -> frozenset[str]:
        """The arguments at these places; negative ones count from the end."""
        names = list(self._signature.parameters)
        if wrong := [n for n in argnums if not -len(names) <= n < len(names)]:
            raise DTypeError(f"jit: static_argnums {wrong}: {self._name}{self._signature} has {len(names)} arguments")
        return frozenset(names[n] for n in argnums)

    def _split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[tuple[str, Hashable], ...]]:
        """Arguments without the static ones, and those."""
        if not self._static:
            return args, kwargs, ()
        bound = self._signature.bind(*args, **kwargs)
        static = tuple((n, v) for n, v in bound.arguments.items() if n in self._static)
        dynamic = {n: v for n, v in bound.arguments.items() if n not in self._static}
        for name, value in static:
            if not isinstance(value, Hashable):
                raise DTypeError(f"{self._name}: static argument {name} is a {type(value).__name__}, which cannot be hashed")
        return (), dynamic, static

    def _checked(self, leaves: list[Any], tree: Tree) -> list[Any]:
        """The leaves, those that another library lends as arrays.

        Raises DTypeError, naming the argument, for one that is neither an array nor a number.
        """
        if not all([type(leaf) is np.ndarray or is_array_like(leaf) for leaf in leaves]):
            for leaf, name in zip(leaves, argument_names(self._function, tree), strict=True):
                require_array_like(leaf, f"{name} of {self._name}")
        return [self._read(leaf) if is_lent(leaf) else leaf for leaf in leaves]

    def _native(self, leaf: Any) -> Any:
        """A leaf as an array in this machine's byte order; one that is on a device stays there."""
        if isinstance(leaf, DeviceArray) and backend_of(self._target, self._options.device).takes_device_arrays:
            return leaf
        require_on_cpu(leaf, f"{self._name}: an argument")
        require_unmasked(leaf, f"{self._name}: an argument")
        array = self._read(leaf)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def _read(self, leaf: Any) -> Any:
        try:
            return given_array(leaf)
        except (ShapeError, DTypeError) as error:
            raise type(error)(f"{self._name}: an argument: {error}") from error

    def _computed(self, arrays: Sequence[Any], leaves: list[Any], tree: Tree, static: tuple[tuple[str, Hashable], ...]) -> Any:
        """The function's result without the compiler."""
        eager = EagerTrace([np.asarray(array) for array in arrays])
        traced = self._trace(leaves, tree, static, (), eager)
        return unflatten(traced.results, iter([as_result(r) for r in eager.results(traced.returned)]))

    def _lower(
        self,
        leaves: list[Any],
        tree: Tree,
        static: tuple[tuple[str, Hashable], ...],
        open_: Sequence[Mapping[int, OpenSize]],
    ) -> Lowered:
        leaves = self._checked(leaves, tree)
        traced = self._trace(leaves, tree, static, open_)
        program = Program(traced.module, traced.weights, self._name)
        return Lowered(program, leaves, traced.results, self._target, self._options)

    def _trace(
        self,
        leaves: list[Any],
        tree: Tree,
        static: tuple[tuple[str, Hashable], ...],
        open_: Sequence[Mapping[int, OpenSize]],
        into: Trace | None = None,
    ) -> Traced:
        names = argument_names(self._function, tree)
        traced = trace(self._function, leaves, tree, names, dict(static), open_, into=into)
        if self._donated:
            donated = [k for k, name in enumerate(names) if re.split(r"[.\[]", name)[0] in self._donated]
            donate(traced.module, donated, self._name)
        return traced

    def _open_sizes(self, tree: Tree) -> tuple[Mapping[int, OpenSize], ...]:
        """Which sizes of each leaf of the arguments are open; raises ShapeError for an argument that is not there."""
        if tree not in self._open:
            names = argument_names(self._function, tree)
            missing = sorted(self._dynamic.keys() - set(names))
            if missing:
                raise ShapeError(f"jit: dynamic names {missing[0]!r}; the arguments of {self._name} are {', '.join(names)}")
            self._open[tree] = tuple(self._dynamic.get(name, {}) for name in names)
        return self._open[tree]

    def _made(
        self,
        key: Hashable,
        leaves: list[Any],
        tree: Tree,
        static: tuple[tuple[str, Hashable], ...],
        shapes: tuple[tuple[int, ...], ...],
    ) -> _Compiled:
        """What is compiled for `key`: with open sizes, or, where the function cannot be traced with them, for these shapes."""
        if key in self._compiled:
            return self._compiled[key]
        began, open_, lowered = perf_counter(), self._open_sizes(tree), None
        if key not in self._by_shape:
            try:
                lowered = self._lower(leaves, tree, static, open_)
            except (DlcError, ArithmeticError, TypeError) as error:
                if not any(open_):
                    raise
                # What is wrong for known sizes too is said by the trace with them.
                warnings.warn(f"{self._name} is compiled for each set of sizes: {error}", stacklevel=3)
                self._by_shape.add(key)
        names = argument_names(self._function, tree)
        if lowered is None:
            self._require_stated(names, shapes, open_)
            key = key, shapes
            if key in self._compiled:
                return self._compiled[key]
            lowered = self._lower(leaves, tree, static, [{} for _ in leaves])
        made = self._compile(lowered)
        if len(self._compiled) >= MOST:
            del self._compiled[next(iter(self._compiled))]
        self._compiled[key] = made
        texts = {name: _told(leaf, shape) for name, leaf, shape in zip(names, leaves, shapes, strict=True)}
        self._recompilations.note({**texts, **{name: repr(value) for name, value in static}}, perf_counter() - began)
        return made

    def _require_stated(
        self, names: Sequence[str], shapes: Sequence[tuple[int, ...]], open_: Sequence[Mapping[int, OpenSize]]
    ) -> None:
        """Raises ShapeError for a size outside of the range that it was said to have."""
        for name, shape, axes in zip(names, shapes, open_, strict=True):
            for axis, (size, stated) in axes.items():
                if stated is not None and shape[axis] not in stated:
                    raise ShapeError(f"{name} of {self._name}: {size} = {shape[axis]}, which was said to be {stated}")

    def _compile(self, lowered: Lowered) -> _Compiled:
        options = self._options
        if options.dump_ir is not None and self._compiled:
            # A dump is of the first compilation; later ones differ in shapes only.
            lowered = replace(lowered, options=replace(options, dump_ir=None))
        return _Compiled(lowered.compile(), lowered.results)


def _told(leaf: Any, shape: tuple[int, ...]) -> str:
    """What matters of an argument, as it is told."""
    return type(leaf).__name__ if is_number(leaf) else f"{leaf.dtype}[{', '.join(map(str, shape))}]"


def _open_size(text: str) -> OpenSize:
    try:
        name, stated = parse_ranged(text)
    except ValueError as error:
        raise ShapeError(f"jit: {text!r}: {error}; write N, N:1..32 or N:1..") from error
    return parse(name), stated


def _closed(shape: tuple[int, ...], open_: Mapping[int, OpenSize]) -> tuple[int | None, ...]:
    """A shape without what is open."""
    return tuple([None if axis in open_ else size for axis, size in enumerate(shape)]) if open_ else shape


@overload
def jit(function: Callable[..., Any], /) -> JitFunction: ...
@overload
def jit(
    *,
    target: str | Backend = "cpu",
    static_argnames: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    donate_argnames: str | Sequence[str] = (),
    dump_ir: str | Path | None = None,
    num_threads: int | None = None,
    pipeline: str | None = None,
    check_each_pass: bool = False,
    cache: bool | None = None,
    numerics: str = "default",
    weights: str = "float",
    group: int = 32,
) -> Callable[[Callable[..., Any]], JitFunction]: ...
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    target: str | Backend = "cpu",
    static_argnames: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    donate_argnames: str | Sequence[str] = (),
    dump_ir: str | Path | None = None,
    num_threads: int | None = None,
    pipeline: str | None = None,
    check_each_pass: bool = False,
    cache: bool | None = None,
    numerics: str = "default",
    weights: str = "float",
    group: int = 32,
) -> Any:
    """Compiles a function on arrays for `target` when it is called: `@dlc.jit` or `@dlc.jit(target=…, …)`.

    `static_argnames`, `static_argnums`: arguments, by name or by place, that are settings, not arrays; each value is compiled
    for by itself. `dynamic`:
    sizes that are open, by argument and axis, with a range if there is one: `{"x": {0: "N:1..32"}}` compiles once for all of
    them where that can be. `donate_argnames`: arguments that the caller gives away: each array of them is overwritten by the
    first result of its type that is left, both in their order, and is that result afterwards (on a CPU; one that cannot be
    overwritten is copied first); ShapeError for one that finds none. `dump_ir`: a folder for
    the IR after every pass of the first compilation. `num_threads`: all CPUs of this process if None. `pipeline`: passes to
    run instead of the target's. `check_each_pass`: the first call with new shapes checks, on its arguments, what every pass
    makes of the function; CompileError names the first one after which results are wrong, and your lines. What is compiled
    for a CPU is kept and found again in later processes, by what the function computes, unless `cache` is False.
    `numerics="strict"` keeps to the operations as they are written (docs/numerics.md). `weights` of `int8` or `int4` makes
    integers of the large weights of products, with a scale for each `group` of them (docs/few_bits.md).

    Raises what tracing raises: ShapeError and DTypeError start with the user's line.
    """
    folder = Path(dump_ir) if dump_ir is not None else None
    options = Options.of(
        num_threads=num_threads,
        dump_ir=folder,
        pipeline=pipeline,
        check_each_pass=check_each_pass,
        cache=cache,
        numerics=numerics,
        weights=weights,
        group=group,
    )

    def wrap(f: Callable[..., Any]) -> JitFunction:
        static = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
        donated = (donate_argnames,) if isinstance(donate_argnames, str) else donate_argnames
        places = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
        return JitFunction(f, target, options, static, dynamic, donated, places)

    return wrap if function is None else wrap(function)
