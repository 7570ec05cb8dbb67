"""`@dlc.jit`: a Python function, compiled for the shapes and dtypes it is called with."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any, overload

import numpy as np

import dlc.numpy
from dlc.backends.base import Backend
from dlc.backends.registry import backend_of
from dlc.compiler import Program, compile, emit
from dlc.dims import UndecidableError, bind_sizes
from dlc.eager import EagerTrace, is_jit_disabled
from dlc.errors import DlcError
from dlc.explore import Page, explore
from dlc.frontend.answers import Condition
from dlc.frontend.donation import donate
from dlc.frontend.pytree import ARRAYS, Tree, tree_of_arrays, unflatten
from dlc.frontend.trace import Trace, Tracer, is_number
from dlc.frontend.traced import Traced, trace
from dlc.given_arguments import Given, OpenSizes, Parameters, closed, told_apart
from dlc.instrument.report import Report
from dlc.measure.profile import Profile, profile
from dlc.options import Environment, Options
from dlc.runtime.cpu.direct import DirectCall, direct_call
from dlc.runtime.models.kept import MOST
from dlc.runtime.models.model import Model, as_result, require_fitting
from dlc.runtime.models.recompilations import Recompilations
from dlc.runtime.opencl.array import DeviceArray

# A function that asks in more ways what its open sizes are is compiled for each set of them.
_MOST_CASES = 8
# Imported for what it does: it gives traced arrays their operators.
_operators = dlc.numpy


@dataclass(frozen=True)
class Lowered:
    """A function traced for some arguments, to be looked at: `predict.lower(x).as_text("linalg")`."""

    program: Program
    results: Tree
    target: str | Backend
    options: Options
    # Of numbers among the arguments, by their places: the integer dtypes that they take.
    taken_by_numbers: Mapping[int, set[np.dtype[Any]]]

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
    taken_by_numbers: Mapping[int, set[np.dtype[Any]]]
    conditions: tuple[Condition, ...] = ()

    def serves(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether it is what the function is for these shapes, as far as it has asked."""
        if not self.conditions:
            return True
        sizes: dict[str, int] = {}
        for info, shape in zip(self.model.inputs, shapes, strict=True):
            bind_sizes(info.shape, shape, sizes)
        return all(condition.holds(sizes) for condition in self.conditions)

    @cached_property
    def direct(self) -> DirectCall | None:
        """What calls it with arrays without Python."""
        return direct_call(self.model.run_unchecked)


class JitFunction:
    """A function that is traced and compiled once per structure, shapes and dtypes of its arguments and static values.

    Arguments are arrays, numbers, and nested tuples, lists, dicts and dataclasses of them; numbers take the dtype of the
    arrays they meet. Results are arrays in the containers that the function returns.
    """

    def __init__(self, parameters: Parameters, target: str | Backend, options: Options) -> None:
        functools.update_wrapper(self, parameters.function)
        self._function = parameters.function
        self._parameters = parameters
        self._target = target
        self._options = options
        # What was compiled first makes room for new ones.
        self._compiled: dict[Hashable, _Compiled] = {}
        advice = "leave sizes that change open (jit's `dynamic`), and take settings that change as arrays"
        self._recompilations = Recompilations(parameters.name, advice)
        # What is traced for each set of shapes by itself although sizes of it are open.
        self._by_shape: set[Hashable] = set()
        # What is compiled for sizes that meet conditions, where the function asks what open sizes are.
        self._cases: dict[Hashable, list[Hashable]] = {}
        self._lock = Lock()
        # What was called last with nothing but arrays, and the tree of its results.
        self._last: tuple[DirectCall, Tree] | None = None
        self._eager = not Environment.read().jit

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result; compiles first if these shapes, dtypes and static values are new."""
        last = self._last
        if last is not None and not kwargs and not is_jit_disabled(self._eager):
            results = last[0](*args)
            if results is not None:
                return results[0] if last[1].kind is None else unflatten(last[1], iter(results))
        if not kwargs and all([type(a) in ARRAYS for a in args]):
            # What was compiled for nothing but these arrays is found at once.
            compiled = self._compiled.get((tree_of_arrays(len(args)), tuple([(a.shape, a.dtype) for a in args])))
            if compiled is not None and not is_jit_disabled(self._eager):
                self._last = (compiled.direct, compiled.results) if compiled.direct is not None else None
                return unflatten(compiled.results, map(as_result, compiled.model.run_unchecked(args)))
        given = self._parameters.given(args, kwargs)
        arrays, kinds = given.leaves, ()
        if all([type(leaf) in ARRAYS and leaf.dtype.isnative for leaf in given.leaves]):
            kinds = tuple([(leaf.shape, leaf.dtype) for leaf in given.leaves])
        elif any([type(leaf) is Tracer for leaf in given.leaves]):
            # Called while another function is traced: it becomes part of that one.
            return self._function(*args, **kwargs)
        else:
            given = self._parameters.checked(given)
            arrays = [self._native(leaf) for leaf in given.leaves]
            weak = [("weak",) if is_number(leaf) else () for leaf in given.leaves]
            kinds = tuple([(a.shape, a.dtype, *w) for a, w in zip(arrays, weak, strict=True)])
        if is_jit_disabled(self._eager):
            return self._computed(given, arrays)
        if self._parameters.has_open_sizes:
            open_ = self._parameters.open_sizes(given.tree)
            kinds = tuple([(closed(shape, axes), *rest) for (shape, *rest), axes in zip(kinds, open_, strict=True)])
        key: Hashable = given.tree, kinds
        if given.settings:
            key = *key, given.settings, tuple([told_apart(value) for _, value in given.settings])
        compiled = self._compiled.get(key)
        if compiled is None:
            with self._lock:
                compiled = self._found_or_made(key, given, tuple([a.shape for a in arrays]))
        if self._parameters.has_open_sizes:
            require_fitting(self._parameters.name, compiled.model.inputs, arrays)
        self._parameters.require_held(given, compiled.taken_by_numbers)
        return unflatten(compiled.results, map(as_result, compiled.model.run_unchecked(arrays)))

    def __reduce__(self) -> str:
        """Pickled by its name, as functions are: it is compiled where it is called."""
        return getattr(self._function, "__qualname__", self._parameters.name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The function traced for arguments like these; only shapes, dtypes and static values matter.

        A `dlc.ShapeDtype` may stand in an array's place.
        """
        given = self._parameters.given(args, kwargs)
        return self._lower(given, self._parameters.open_sizes(given.tree))

    def explore(self, *args: Any, **kwargs: Any) -> Page:
        """A page of what the compiler made of the function for these arguments, measured on them.

        A notebook shows it, `.save("page.html")` writes it; dlc/explore says what it has.
        """
        lowered, options = self.lower(*args, **kwargs), replace(self._options, dump_ir=None)
        return explore(lowered.program, self._target, options, inputs=self.arrays(*args, **kwargs))

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """What a call with these arguments takes: kernels, time and memory, and what compiling it took."""
        lowered, report = self.lower(*args, **kwargs), Report()
        model = compile(lowered.program, self._target, replace(self._options, dump_ir=None), report=report)
        found = profile(model, self.arrays(*args, **kwargs), report.phases)
        return replace(found, compilations=len(self._compiled))

    def arrays(self, *args: Any, **kwargs: Any) -> list[Any]:
        """What a call with these arguments gives the program, in the order of its inputs."""
        given = self._parameters.checked(self._parameters.given(args, kwargs))
        return [self._native(leaf) for leaf in given.leaves]

    def _native(self, leaf: Any) -> Any:
        on_device = isinstance(leaf, DeviceArray) and backend_of(self._target, self._options.device).takes_device_arrays
        return self._parameters.native(leaf, on_device=on_device)

    def _computed(self, given: Given, arrays: Sequence[Any]) -> Any:
        """The function's result without the compiler."""
        eager = EagerTrace([np.asarray(array) for array in arrays])
        traced = self._trace(given, (), eager)
        self._parameters.require_held(given, traced.taken_by_numbers)
        return unflatten(traced.results, iter([as_result(r) for r in eager.results(traced.returned)]))

    def _lower(self, given: Given, open_: OpenSizes, *, by_call: bool = False) -> Lowered:
        given = self._parameters.checked(given)
        traced = self._trace(given, open_, by_call=by_call)
        program = Program(traced.module, traced.weights, self._parameters.name, conditions=traced.conditions)
        return Lowered(program, traced.results, self._target, self._options, traced.taken_by_numbers)

    def _trace(self, given: Given, open_: OpenSizes, into: Trace | None = None, *, by_call: bool = False) -> Traced:
        names, settings = self._parameters.names(given.tree), dict(given.settings)
        traced = trace(self._function, given.leaves, given.tree, names, settings, open_, into=into, by_call=by_call)
        if donated := self._parameters.donated(given.tree):
            donate(traced.module, donated, self._parameters.name)
        return traced

    def _found_or_made(self, key: Hashable, given: Given, shapes: tuple[tuple[int, ...], ...]) -> _Compiled:
        """What is compiled for `key` and these shapes."""
        for case in (key, *self._cases.get(key, ()), (key, shapes)):
            found = self._compiled.get(case)
            if found is not None and found.serves(shapes):
                return found
        began = perf_counter()
        case, lowered = self._case(key, given, shapes)
        made = self._compile(lowered)
        if len(self._compiled) >= MOST:
            del self._compiled[next(iter(self._compiled))]
        self._compiled[case] = made
        self._recompilations.note(self._parameters.told(given, shapes), perf_counter() - began)
        return made

    def _case(self, key: Hashable, given: Given, shapes: tuple[tuple[int, ...], ...]) -> tuple[Hashable, Lowered]:
        """The function traced with open sizes, where it asks what they are for those of which it is so; or, where it cannot be,
        for these shapes: by what it is found, and the trace."""
        parameters, cases = self._parameters, self._cases.get(key, [])
        parameters.require_axes(given.tree, shapes)
        open_ = parameters.open_sizes(given.tree)
        if key not in self._by_shape:
            try:
                lowered = self._lower_openly(given, open_)
                if not lowered.program.conditions:
                    return key, lowered
                if len(cases) < _MOST_CASES:
                    parameters.require_stated(given.tree, shapes)
                    case = key, lowered.program.conditions
                    self._cases[key] = [*(c for c in cases if c != case), case]
                    return case, lowered
                error: object = f"it asks in more than {_MOST_CASES} ways what they are"
            except (DlcError, ArithmeticError, TypeError) as raised:
                if not any(open_):
                    raise
                error = raised
        else:
            error = None
        parameters.require_stated(given.tree, shapes)
        # What is wrong for known sizes too is said by the trace with them, and says nothing of others.
        known = self._lower(given, tuple({} for _ in given.leaves))
        if error is not None:
            warnings.warn(f"{parameters.name} is compiled for each set of sizes: {error}", stacklevel=4)
            self._by_shape.add(key)
        return (key, shapes), known

    def _lower_openly(self, given: Given, open_: OpenSizes) -> Lowered:
        try:
            return self._lower(given, open_)
        except UndecidableError:
            return self._lower(given, open_, by_call=True)

    def _compile(self, lowered: Lowered) -> _Compiled:
        options = self._options
        if options.dump_ir is not None and self._compiled:
            # A dump is of the first compilation; later ones differ in shapes only.
            lowered = replace(lowered, options=replace(options, dump_ir=None))
        return _Compiled(lowered.compile(), lowered.results, lowered.taken_by_numbers, lowered.program.conditions)


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
    precision: str = "f32",
    weights: str = "float",
    group: int = 32,
    tune: float = 0.0,
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
    precision: str = "f32",
    weights: str = "float",
    group: int = 32,
    tune: float = 0.0,
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
    `numerics="strict"` keeps to the operations as they are written, `precision` of `bf16` or `f16` rounds what contractions of
    f32 with weights, which are arrays that the function has and not its arguments, multiply (docs/numerics.md). `weights` of
    `int8` or `int4` makes integers of the large ones of products, with a scale for each `group` of them (docs/few_bits.md).
    `tune` is for how many seconds tile plans for a CPU are measured when the function is compiled; what was found is kept.

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
        precision=precision,
        weights=weights,
        group=group,
        tune=tune,
    )

    def wrap(f: Callable[..., Any]) -> JitFunction:
        static = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
        donated = (donate_argnames,) if isinstance(donate_argnames, str) else donate_argnames
        places = (static_argnums,) if isinstance(static_argnums, int) else static_argnums
        return JitFunction(Parameters(f, static, places, donated, dynamic or {}), target, options)

    return wrap if function is None else wrap(function)
