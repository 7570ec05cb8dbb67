"""Compile functions of JAX: JAX lowers them to StableHLO, which dlc imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from dlc.compiler import Program, compile
from dlc.distributed.mesh_model import compile_on_mesh
from dlc.errors import DlcError, ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import from_parts, real_and_imaginary
from dlc.options import CompileOptions, Options
from dlc.runtime.models.model import Model
from dlc.runtime.requests.request_queue import RequestQueue
from dlc.runtime.requests.submittable import Submittable
from dlc.stablehlo import read_module

if TYPE_CHECKING:
    from dlc.backends.base import Backend
    from dlc.runtime.collectives.mesh import Mesh


class JaxFunction(Submittable):
    """A compiled JAX function, with the arguments and results of the original; results are NumPy arrays.

    Random keys stay JAX keys. `arguments` and `results` are pytrees of shapes and dtypes. `model` is the program over the
    leaves of the arguments; it can be saved.
    """

    def __init__(self, model: Model, arguments: Any, results: Any, jax: Any) -> None:
        self.model, self._jax = model, jax
        (self._argument_infos, self._argument_tree), (self._result_infos, self._result_tree) = map(
            jax.tree.flatten, (arguments, results)
        )

    def __call__(self, *arguments: Any) -> Any:
        """Raises ShapeError for arguments whose tree structure differs from the examples, and whatever the model raises."""
        leaves, structure = self._jax.tree.flatten(arguments)
        if structure != self._argument_tree:
            raise ShapeError(
                f"{self.model.name}: got arguments of the structure {structure}; it was compiled for {self._argument_tree}"
            )
        arrays = (array for leaf, info in zip(leaves, self._argument_infos, strict=True) for array in self._arrays(leaf, info))
        results = iter(self.model(*arrays).values())
        return self._jax.tree.unflatten(self._result_tree, [self._result(results, info) for info in self._result_infos])

    def _new_queue(self) -> RequestQueue:
        return self.model.requests.of_function(self)

    def _arrays(self, leaf: Any, info: Any) -> Sequence[Any]:
        """Return the model's inputs for one leaf: real and imaginary part of a complex array, or the data of a random key."""
        if self._is_key(info):
            return (np.asarray(self._jax.random.key_data(leaf) if self._is_key(leaf) else leaf),)
        array = np.asarray(leaf, info.dtype)
        return real_and_imaginary(array) if array.dtype.kind == "c" else (array,)

    def _result(self, arrays: Iterator[Any], info: Any) -> Any:
        if self._is_key(info):
            return self._jax.random.wrap_key_data(next(arrays))
        return from_parts(next(arrays), next(arrays)) if info.dtype.kind == "c" else next(arrays)

    def _is_key(self, info: Any) -> bool:
        return hasattr(info, "dtype") and self._jax.dtypes.issubdtype(info.dtype, self._jax.dtypes.prng_key)


def _identity(*arguments: Any) -> Any:
    return arguments


def from_jax(
    f: Callable[..., Any],
    *examples: Any,
    target: str | Backend = "cpu",
    mesh: Mesh | None = None,
    **options: Unpack[CompileOptions],
) -> JaxFunction:
    """Compile a JAX function for arguments with the shapes and dtypes of the examples.

    Examples are arrays, `jax.ShapeDtypeStruct`, or pytrees of them. Dimensions of `jax.export.symbolic_shape` stay symbolic:
    one compilation is valid for all sizes. See `CompileOptions` for the options.

    With a `mesh` of dlc, all ranks run the function together (docs/distributed.md), on equal global arrays. The shardings of
    the JAX function are annotations: those of `jax.jit`, of `jax.lax.with_sharding_constraint`, and of examples. They name axes
    of `mesh`, whose sizes may differ from those of the JAX mesh. Without a mesh, shardings are ignored.

    Raises UnsupportedError for ops that dlc does not support (all of them, with their lines in the StableHLO text), and
    DlcError if JAX is not installed.
    """
    compile_options = Options.from_keywords("dlc.from_jax", options)
    try:
        jax = import_module("jax")
    except ImportError as error:
        raise DlcError(f"dlc.from_jax: {error}; install jax") from error
    name = getattr(f, "__name__", "function")
    paths, _ = jax.tree_util.tree_flatten_with_path(examples)
    text, results = _lowered(jax, f, examples)
    imported = read_module(text, f"{name}.mlir", [jax.tree_util.keystr(path) for path, _ in paths])
    if len({info.name for info in imported.outputs}) != len(imported.outputs):
        names = ", ".join(info.name for info in imported.outputs)
        raise UnsupportedError(f"dlc.from_jax: {name}: results must have different names: {names}")
    program = Program(imported.module, imported.weights, name)
    if mesh is None:
        model = compile(program, target, compile_options)
    else:
        model = compile_on_mesh(program, mesh, None, target, compile_options)
    return JaxFunction(model, jax.eval_shape(_identity, *examples), results, jax)


def _lowered(jax: Any, f: Callable[..., Any], examples: Sequence[Any]) -> tuple[str, Any]:
    """Return the StableHLO text of a function, and the shapes and dtypes of its results; symbolic shapes need jax.export."""
    jitted = jax.jit(f, keep_unused=True)
    if all(isinstance(size, int) for leaf in jax.tree.leaves(examples) for size in np.shape(leaf)):
        lowered = jitted.lower(*examples)
        return lowered.as_text(), lowered.out_info
    exported = import_module("jax.export").export(jitted)(*examples)
    return str(exported.mlir_module()), jax.tree.unflatten(exported.out_tree, exported.out_avals)
