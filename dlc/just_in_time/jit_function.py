"""Jitted functions: Python functions that are compiled for the shapes and dtypes of their calls."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from dlc.arrays import ShapeDtype
from dlc.backends.base import Backend
from dlc.backends.registry import backend_of
from dlc.compiler import Program, compile, specializer_for
from dlc.compiler.sharding import AutoSharding, ShardedProgram, shard_program
from dlc.deploy import save_model
from dlc.distributed.annotations import annotated
from dlc.distributed.distributed_array import DistributedArray
from dlc.distributed.local_mesh import current_jit_mesh, jit_mesh
from dlc.distributed.placement import Placement
from dlc.errors import DlcError, UnsupportedError
from dlc.explore import Page, explore
from dlc.files.atomic_writes import to_path
from dlc.frontend.donation import donate
from dlc.frontend.function_tracing import TracedFunction, trace
from dlc.frontend.pytree import ARRAY_TYPES, Tree, flatten, tree_of_positional_arrays, unflatten
from dlc.frontend.trace import Trace, Tracer, is_python_scalar, with_user_line
from dlc.instrument.report import Report
from dlc.just_in_time.call_arguments import CallArguments, ParameterKinds, SymbolicSizes, type_exact_key
from dlc.just_in_time.eager import EagerTrace, is_jit_disabled
from dlc.just_in_time.lowered import Lowered
from dlc.measure.profile import Profile, profile
from dlc.options import Environment, Options, thread_count
from dlc.runtime.cpu.code.native import reserve_pools
from dlc.runtime.cpu.direct_calls import DirectCall
from dlc.runtime.models.model import Model, as_result
from dlc.runtime.models.specializations import Specialization, Specializations
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.runtime.opencl.array import DeviceArray
from dlc.runtime.requests.future import Future
from dlc.runtime.requests.request_queue import RequestQueue
from dlc.runtime.requests.submittable import Submittable
from dlc.shapes.dims import Dim, UndecidableError
from dlc.shapes.domain import SizeDomain

# Python numbers take the dtype of the arrays that they are combined with; NumPy's scalars have one.
_WEAK_TYPES = frozenset((bool, int, float))
_NUMBER_OR_ARRAY_TYPES = frozenset((*ARRAY_TYPES, *_WEAK_TYPES, *(np.dtype(code).type for code in "?bBhHiIlLqQefd")))
# Arguments of a function on a mesh.
_SHARDED_TYPES = frozenset((*ARRAY_TYPES, DistributedArray))


@dataclass(frozen=True)
class _CompiledFunction:
    model: Model
    results: Tree
    weak_argument_dtypes: Mapping[int, set[np.dtype[Any]]]


class JitFunction(Submittable):
    """A function that is traced and compiled once per tree structure, shapes and dtypes of its arguments and static values.

    Sizes of symbolic dimensions (`dynamic`) share a program as far as its guards admit.

    Arguments are arrays, numbers, and nested tuples, lists, dicts and dataclasses of them. Numbers take the dtype of the arrays
    that they are combined with. Results are arrays in the containers that the function returns.
    """

    def __init__(
        self, parameters: ParameterKinds, target: str | Backend, options: Options, placement: Placement | None = None
    ) -> None:
        functools.update_wrapper(self, parameters.function)
        self._function = parameters.function
        self._parameters = parameters
        self._target = target
        self._options = options
        self._placement = placement
        advice = "declare dimensions that change as symbolic (jit's `dynamic`), and pass settings that change as arrays"
        self._specializations = Specializations[_CompiledFunction](parameters.name, advice)
        self._specializer = specializer_for(parameters.name, target, options)
        # The direct call that was used last with arrays only, and the tree of its results.
        self._last: tuple[DirectCall, Tree] | None = None
        self._eager = not Environment.read().jit

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's result; compile first if these shapes, dtypes and static values are new."""
        last_call = self._last
        if last_call is not None and not kwargs and not is_jit_disabled(self._eager):
            results = last_call[0](*args)
            if results is not None:
                return results[0] if last_call[1].kind is None else unflatten(last_call[1], iter(results))
        if not kwargs and all([type(a) in ARRAY_TYPES for a in args]):
            # Fast path for calls with arrays only.
            call = tree_of_positional_arrays(len(args)), tuple([(a.shape, a.dtype) for a in args])
            found = self._specializations.recent(call)
            if found is not None and not is_jit_disabled(self._eager):
                compiled = found.program
                self._record(compiled, args)
                return unflatten(compiled.results, map(as_result, compiled.model.run_unchecked(args)))
        elif not kwargs and all([type(a) in _NUMBER_OR_ARRAY_TYPES for a in args]):
            # As fast with numbers, unless the program converts Python numbers to integers, which must fit.
            arrays = [a if type(a) in ARRAY_TYPES else np.asarray(a) for a in args]
            kinds = [
                (a.shape, a.dtype, "weak") if type(x) in _WEAK_TYPES else (a.shape, a.dtype)
                for a, x in zip(arrays, args, strict=True)
            ]
            found = self._specializations.recent((tree_of_positional_arrays(len(args)), tuple(kinds)))
            if found is not None and not found.program.weak_argument_dtypes and not is_jit_disabled(self._eager):
                compiled = found.program
                direct_calls = compiled.model.direct_calls
                results = direct_calls.call(*arrays) if direct_calls.call is not None else None
                if results is None:
                    direct_calls.record(arrays)
                    results = map(as_result, compiled.model.run_unchecked(arrays))
                return unflatten(compiled.results, iter(results))
        arguments = self._parameters.arguments(args, kwargs)
        arrays, kinds = arguments.leaves, ()
        if all([type(leaf) in ARRAY_TYPES and leaf.dtype.isnative for leaf in arguments.leaves]):
            kinds = tuple([(leaf.shape, leaf.dtype) for leaf in arguments.leaves])
        elif any([type(leaf) is Tracer for leaf in arguments.leaves]):
            return self._inline(arguments, args, kwargs)
        else:
            arguments = self._parameters.validated(arguments)
            arrays = [leaf if self._is_distributed(leaf) else self._native(leaf) for leaf in arguments.leaves]
            markers = [self._key_marker(leaf) for leaf in arguments.leaves]
            kinds = tuple([(a.shape, a.dtype, *marker) for a, marker in zip(arrays, markers, strict=True)])
        if is_jit_disabled(self._eager):
            return self._run_eagerly(arguments, arrays)
        call: tuple[Hashable, ...] = arguments.tree, kinds
        if arguments.settings:
            call = *call, arguments.settings, tuple([type_exact_key(value) for _, value in arguments.settings])
        found = self._specializations.recent(call)
        if found is None:
            found = self._find_or_compile(call, arguments, arrays)
        compiled = found.program
        self._parameters.require_representable(arguments, compiled.weak_argument_dtypes)
        results = unflatten(compiled.results, map(as_result, compiled.model.run_unchecked(arrays)))
        if self._placement is not None and not kwargs and not arguments.settings and _SHARDED_TYPES.issuperset(map(type, args)):
            self._record(compiled, arrays)
        return results

    def _record(self, compiled: _CompiledFunction, arrays: Sequence[Any]) -> None:
        """Record a call with arrays only, so that later ones may bypass Python."""
        direct_calls = compiled.model.direct_calls
        direct_calls.record(arrays)
        self._last = (direct_calls.call, compiled.results) if direct_calls.call is not None else None

    def _inline(self, arguments: CallArguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Inline the function into another one that is being traced; its shardings become annotations.

        Raises DlcError if the other function is traced for another mesh, or without one.
        """
        placement = self._placement
        if placement is None:
            return self._function(*args, **kwargs)
        mesh, outer = placement.mesh, current_jit_mesh()
        if mesh != outer:
            where = "without a mesh" if outer is None else f"for the mesh {outer}"
            raise with_user_line(
                DlcError(
                    f"{self._parameters.name}: a function on the mesh {mesh} is called while a function is traced {where}; "
                    f"compile the outer function with this mesh: dlc.jit(mesh=…)"
                )
            )
        specs = placement.input_specs(self._parameters.parameter_names, arguments.tree, arguments.leaves)
        args, kwargs = unflatten(arguments.tree, map(annotated, arguments.leaves, specs))
        leaves, tree = flatten(self._function(*args, **kwargs, **dict(arguments.settings)))
        return unflatten(tree, map(annotated, leaves, placement.output_specs(tree, [np.ndim(leaf) for leaf in leaves])))

    def _is_distributed(self, leaf: Any) -> bool:
        """Return whether an argument is passed to the program of a mesh as the shards of its ranks."""
        return self._placement is not None and isinstance(leaf, DistributedArray)

    def _key_marker(self, leaf: Any) -> tuple[Hashable, ...]:
        """Return what a program depends on in addition to the shape and dtype of an argument."""
        if is_python_scalar(leaf):
            return ("weak",)
        spec = None if self._placement is None else self._placement.spec_of(leaf)
        return () if spec is None else (spec,)

    def _require_one_process(self, method: str) -> None:
        """Raise UnsupportedError for a method that functions on a mesh do not have."""
        if self._placement is not None:
            raise UnsupportedError(f"{self._parameters.name}.{method}: a function on the mesh {self._placement.mesh} has none")

    def _new_queue(self) -> RequestQueue:
        self._require_one_process("submit")
        options = self._options
        threads = 1 if backend_of(self._target, options.device).takes_device_arrays else thread_count(options.num_threads)
        reserve_pools(threads, options.streams, options.cpus)
        name = self._parameters.name
        return RequestQueue(self, name=name, num_threads=threads, streams=options.streams, cpus=options.cpus)

    def submit(self, /, *arguments: Any, priority: int = 0, deadline: float | None = None, **named: Any) -> Future:
        if any(type(leaf) is Tracer for leaf in (*arguments, *named.values())):
            raise DlcError(f"{self._parameters.name}.submit: called while another function is traced; call the function itself")
        return super().submit(*arguments, priority=priority, deadline=deadline, **named)

    def __reduce__(self) -> str:
        """Pickle by name, as functions are; the function is compiled again in the other process."""
        return getattr(self._function, "__qualname__", self._parameters.name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace the function for arguments like these; only shapes, dtypes and static values matter.

        A `dlc.ShapeDtype` may be passed in place of an array. The program serves all symbolic sizes if possible. Else the sizes
        of the arguments decide comparisons, as guards, like those of a call; sizes that cannot be symbolic are static.
        """
        return self._lower_for(args, kwargs, prefers_general=True)

    def save(self, path: str | PathLike[str], /, *args: Any, **kwargs: Any) -> None:
        """Compile the function for the shapes and dtypes of these arguments, and write it to a file that runs without Python.

        A path that ends in .so, .o or .a is a library with one C function, and its header is written next to it; one that ends
        in .dlc is a file for `dlc.load` and dlc.h. Inputs and outputs are named after parameters and their containers, in the
        order of the leaves. `dlc.jit(dlc.value_and_grad(f)).save("f.so", x)` writes a function with its gradient.

        The file of a function on a mesh contains the program of a rank, on shards. It serves all ranks, unless a constant is
        split: then each rank saves a file of its own.

        Sizes that cannot be symbolic are those of the arguments, with a warning.

        Raises DlcError for another suffix, and UnsupportedError for a function that partly runs in Python.
        """
        model = self._lower_for(args, kwargs, prefers_general=True).compile()
        if isinstance(model.artifact, SpecializedModel) and model.artifact.is_empty:
            warnings.warn(
                f"{self._parameters.name} is saved for the shapes of its arguments: {model.artifact.reason}", stacklevel=2
            )
            model = self._lower(self._parameters.arguments(args, kwargs), ()).compile()
        save_model(model, to_path(path))

    def explore(self, *args: Any, **kwargs: Any) -> Page:
        """Return a report of the program that is compiled for these arguments, measured on them.

        Notebooks display it, `.save("page.html")` writes it; see dlc/explore.
        """
        self._require_one_process("explore")
        lowered, options = self._lower_for(args, kwargs), replace(self._options, dump_ir=None)
        return explore(lowered.program, self._target, options, inputs=self.arrays(*args, **kwargs))

    def profile(self, *args: Any, **kwargs: Any) -> Profile:
        """Profile a call with these arguments: time per kernel, memory, and compilation time."""
        self._require_one_process("profile")
        lowered, report = self._lower_for(args, kwargs), Report()
        model = compile(lowered.program, self._target, replace(self._options, dump_ir=None), report=report)
        measured = profile(model, self.arrays(*args, **kwargs), report.phases)
        return replace(measured, compilations=self._specializations.num_compilations)

    def arrays(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the arrays that a call with these arguments passes to the program, in the order of its inputs."""
        arguments = self._parameters.validated(self._parameters.arguments(args, kwargs))
        return [self._native(leaf) for leaf in arguments.leaves]

    def _native(self, leaf: Any) -> Any:
        on_device = isinstance(leaf, DeviceArray) and backend_of(self._target, self._options.device).takes_device_arrays
        return self._parameters.native(leaf, on_device=on_device)

    def _run_eagerly(self, arguments: CallArguments, arrays: Sequence[Any]) -> Any:
        """Evaluate the function without compiling it."""
        eager = EagerTrace([np.asarray(array) for array in arrays])
        traced = self._trace(arguments, (), eager)
        self._parameters.require_representable(arguments, traced.weak_argument_dtypes)
        return unflatten(traced.results, iter([as_result(r) for r in eager.results(traced.returned)]))

    def _lower_for(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, prefers_general: bool = False) -> Lowered:
        """Trace the function for the sizes of arguments, as a call does; if `prefers_general`, for all sizes if possible.

        The sizes are static, with a warning, if symbolic ones cannot be traced.
        """
        arguments = self._parameters.arguments(args, kwargs)
        symbolic = self._parameters.symbolic_sizes(arguments.tree)
        if not any(symbolic):
            return self._lower(arguments, symbolic)
        leaves = [leaf if isinstance(leaf, ShapeDtype) else self._native(leaf) for leaf in arguments.leaves]
        _, sizes = self._parameters.bind_sizes(arguments.tree, leaves)
        if prefers_general:
            with contextlib.suppress(DlcError):
                return self._lower(arguments, symbolic)
        try:
            return self._lower(arguments, symbolic, sizes)
        except UndecidableError as error:
            warnings.warn(f"{self._parameters.name} is specialized per shape: {error}", stacklevel=3)
            return self._lower(arguments, ())

    def _lower(self, arguments: CallArguments, symbolic: SymbolicSizes, sizes: Mapping[str, int] | None = None) -> Lowered:
        arguments = self._parameters.validated(arguments)
        global_types = [
            ShapeDtype(leaf.shape, leaf.dtype) if isinstance(leaf, DistributedArray) else leaf for leaf in arguments.leaves
        ]
        traced = self._trace(replace(arguments, leaves=global_types), symbolic, sizes=sizes)
        program = Program(traced.module, traced.weights, self._parameters.name)
        return Lowered(
            program, traced.results, self._target, self._options, traced.weak_argument_dtypes, self._sharded(arguments, traced)
        )

    def _sharded(self, arguments: CallArguments, traced: TracedFunction) -> ShardedProgram | None:
        """Partition a traced function over the mesh, if it has one."""
        if self._placement is None:
            return None
        program = Program(traced.module, traced.weights, self._parameters.name)
        ranks = [len(info.shape) for info in program.outputs]
        inputs = self._placement.input_specs(self._parameters.parameter_names, arguments.tree, arguments.leaves)
        price = self._placement.memory_price
        auto = None if price is None else AutoSharding(price)
        return shard_program(program, self._placement.mesh, inputs, self._placement.output_specs(traced.results, ranks), auto)

    def _trace(
        self,
        arguments: CallArguments,
        symbolic: SymbolicSizes,
        target_trace: Trace | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> TracedFunction:
        names, settings = self._parameters.names(arguments.tree), dict(arguments.settings)
        with jit_mesh(None if self._placement is None else self._placement.mesh):
            traced = trace(
                self._function,
                arguments.leaves,
                arguments.tree,
                names,
                settings,
                symbolic,
                into=target_trace,
                sizes=sizes,
            )
        if donated := self._parameters.donated(arguments.tree):
            donate(traced.module, donated, self._parameters.name)
        return traced

    def _find_or_compile(
        self, call: tuple[Hashable, ...], arguments: CallArguments, arrays: Sequence[Any]
    ) -> Specialization[_CompiledFunction]:
        """Return the specialization that serves a call; compile it if there is none.

        `call` is the exact key of the call: its tree, the shapes and dtypes of its arrays, and its settings.
        """
        parameters, key, sizes = self._parameters, call, dict[str, int]()
        symbolic = parameters.symbolic_sizes(arguments.tree)
        if any(symbolic):
            infos, sizes = parameters.bind_sizes(arguments.tree, arrays)
            weak = map(is_python_scalar, arguments.leaves)
            key = call[0], tuple((tuple(map(str, i.shape)), i.dtype, w) for i, w in zip(infos, weak, strict=True)), *call[2:]
        found = self._specializations.find(call, key, sizes)
        if found is not None:
            return found
        description = parameters.describe(arguments, [array.shape for array in arrays])
        return self._specializations.compile(
            call, key, sizes, lambda: self._specialize(key, arguments, symbolic, sizes), description
        )

    def _specialize(
        self, key: Hashable, arguments: CallArguments, symbolic: SymbolicSizes, sizes: Mapping[str, int]
    ) -> Specialization[_CompiledFunction]:
        """Compile a specialization for the sizes of a call and all others that its guards admit."""
        if self._placement is not None:
            on_mesh = self._lower(arguments, symbolic)
            return Specialization(
                _CompiledFunction(on_mesh.compile(), on_mesh.results, on_mesh.weak_argument_dtypes), SizeDomain()
            )
        lowered: Lowered | None = None

        def read(static: Mapping[str, int]) -> Program:
            nonlocal lowered
            remaining = tuple(
                {axis: size for axis, size in axes.items() if static.keys().isdisjoint(Dim.lift(size[0]).symbols())}
                for axes in symbolic
            )
            lowered = self._lower(arguments, remaining, sizes)
            return lowered.program

        compiled = self._specializer.specialize(sizes, read, key=key)
        assert lowered is not None
        return Specialization(
            _CompiledFunction(compiled.program, lowered.results, lowered.weak_argument_dtypes), compiled.domain
        )
