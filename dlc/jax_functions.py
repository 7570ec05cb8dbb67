"""Functions of JAX, compiled by dlc: JAX lowers them to StableHLO, whose text is read as a model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc.compiler import Program, compile
from dlc.errors import DlcError, ShapeError, UnsupportedError
from dlc.files.whole_files import path_of
from dlc.frontend.complex_numbers import of_parts, parts_of
from dlc.options import Options
from dlc.runtime.models.model import Model
from dlc.stablehlo import read_module

if TYPE_CHECKING:
    from dlc.backends.base import Backend


class JaxFunction:
    """A compiled function: it takes what the function takes, and gives what it gives, with NumPy's arrays for JAX's.

    Random keys stay JAX's.

    `arguments` and `results` are containers of what has their shapes and dtypes.
    `model` is the program over the leaves of its arguments; it can be saved.
    """

    def __init__(self, model: Model, arguments: Any, results: Any, jax: Any) -> None:
        self.model, self._jax = model, jax
        (self._given, self._arguments), (self._made, self._results) = map(jax.tree.flatten, (arguments, results))

    def __call__(self, *arguments: Any) -> Any:
        """Raises ShapeError for arguments of another structure than the examples, and what the model raises."""
        leaves, structure = self._jax.tree.flatten(arguments)
        if structure != self._arguments:
            raise ShapeError(
                f"{self.model.name}: arguments of the structure {structure}; it was compiled for {self._arguments}"
            )
        given = (part for leaf, info in zip(leaves, self._given, strict=True) for part in self._arrays(leaf, info))
        results = iter(self.model(*given).values())
        return self._jax.tree.unflatten(self._results, [self._result(results, info) for info in self._made])

    def _arrays(self, leaf: Any, info: Any) -> Sequence[Any]:
        """What the model has of an argument: of complex numbers both parts, of a random key its words."""
        if self._is_key(info):
            return (np.asarray(self._jax.random.key_data(leaf) if self._is_key(leaf) else leaf),)
        array = np.asarray(leaf, info.dtype)
        return parts_of(array) if array.dtype.kind == "c" else (array,)

    def _result(self, arrays: Iterator[Any], info: Any) -> Any:
        if self._is_key(info):
            return self._jax.random.wrap_key_data(next(arrays))
        return of_parts(next(arrays), next(arrays)) if info.dtype.kind == "c" else next(arrays)

    def _is_key(self, info: Any) -> bool:
        return hasattr(info, "dtype") and self._jax.dtypes.issubdtype(info.dtype, self._jax.dtypes.prng_key)


def _same(*arguments: Any) -> Any:
    return arguments


def from_jax(
    f: Callable[..., Any],
    *examples: Any,
    target: str | Backend = "cpu",
    num_threads: int | None = None,
    dump_ir: str | PathLike[str] | None = None,
    pipeline: str | None = None,
    check_each_pass: bool = False,
    cache: bool | None = None,
    numerics: str = "default",
    precision: str = "f32",
    weights: str = "float",
    group: int = 32,
    tune: float = 0.0,
) -> JaxFunction:
    """A function of JAX compiled for arguments like the examples: arrays, `jax.ShapeDtypeStruct`, or containers of them.

    Sizes of `jax.export.symbolic_shape` are open: one compilation is for all of them.

    The other arguments are those of `compile_model`. Raises UnsupportedError, which lists all with their lines in the lowered
    text, for ops that dlc does not support, and DlcError where JAX is not installed.
    """
    try:
        jax = import_module("jax")
    except ImportError as error:
        raise DlcError(f"dlc.from_jax: {error}; install jax") from error
    folder = path_of(dump_ir) if dump_ir is not None else None
    name = getattr(f, "__name__", "function")
    paths, _ = jax.tree_util.tree_flatten_with_path(examples)
    text, results = _lowered(jax, f, examples)
    read = read_module(text, f"{name}.mlir", [jax.tree_util.keystr(path) for path, _ in paths])
    if len({info.name for info in read.outputs}) != len(read.outputs):
        raise UnsupportedError(f"dlc.from_jax: {name}: results of one name: {', '.join(info.name for info in read.outputs)}")
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
    model = compile(Program(read.module, read.weights, name), target, options)
    return JaxFunction(model, jax.eval_shape(_same, *examples), results, jax)


def _lowered(jax: Any, f: Callable[..., Any], examples: Sequence[Any]) -> tuple[str, Any]:
    """The text of a function for examples, and its results; one with symbolic sizes is exported."""
    jitted = jax.jit(f, keep_unused=True)
    if all(isinstance(size, int) for leaf in jax.tree.leaves(examples) for size in np.shape(leaf)):
        lowered = jitted.lower(*examples)
        return lowered.as_text(), lowered.out_info
    exported = import_module("jax.export").export(jitted)(*examples)
    return str(exported.mlir_module()), jax.tree.unflatten(exported.out_tree, exported.out_avals)
