"""`torch.compile(module, backend="dlc")`: graphs of calls, and of their gradients, compiled when they are first run.

    torch.compile ─ Dynamo: a graph of the call ─ AOTAutograd: of it and of its gradient, without changes in place ─┬─ forward
                                                                                                                  └─ backward

Each graph is a program. In inference parameters and buffers are constants of it, packed once; where they are found to have
changed, they are inputs from then on. Tensors on the CPU are read, and results handed over, without copies.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dlc.errors import DlcError, UnsupportedError
from dlc.options import Options
from dlc.pytorch.calls import Read
from dlc.pytorch.graph import Graph
from dlc.pytorch.interpreter import draws, place_of, refuse_gaps
from dlc.pytorch.library import library, torch
from dlc.pytorch.programs import loose_sizes, model_of, with_sizes
from dlc.pytorch.reading import array_of, decompositions, drop_checks, is_ruled, nodes_of, operator_name, tensor_of
from dlc.runtime.models.model import Model

_common, _partitioners = library("torch._dynamo.backends.common"), library("torch._functorch.partitioners")
_partitioner, _support = (library(f"torch.fx.passes.{name}") for name in ("infra.partitioner", "operator_support"))
_fakes = library("torch._subclasses.fake_tensor")
_log = logging.getLogger("dlc.pytorch")
_REFUSED = "run by PyTorch, since dlc refuses it: %s"
_NAME = "torch.compile"
# So many modules of the same graph have their own constants; of those beyond, parameters are inputs.
_MOST_FROZEN = 64


@dataclass(frozen=True)
class Settings:
    """What `options` of torch.compile say: whether what dlc has no rule for is an `error` or runs `eager`ly, by PyTorch; and
    the target and the options of `dlc.compile_model` that are of every graph."""

    fallback: str = "error"
    target: str = "cpu"
    num_threads: int | None = None
    numerics: str = "default"
    precision: str = "f32"
    weights: str = "float"
    group: int = 32
    tune: float = 0.0
    cache: bool | None = None

    @staticmethod
    def of(options: dict[str, Any] | None) -> Settings:
        """Raises DlcError for an option that there is not, or a value that it cannot have."""
        given = options or {}
        known = Settings.__dataclass_fields__
        if unknown := sorted(given.keys() - known):
            raise DlcError(f"{_NAME}: options {', '.join(unknown)}: the backend dlc has {', '.join(known)}")
        settings = Settings(**given)
        if settings.fallback not in ("error", "eager"):
            raise DlcError(f"{_NAME}: options: fallback {settings.fallback!r}: there are error and eager")
        try:
            _ = settings.compiling
        except UnsupportedError as error:
            raise DlcError(f"{_NAME}: options: {error}") from None
        return settings

    @property
    def compiling(self) -> Options:
        return Options.of(**{f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("fallback", "target")})


def dlc(graph: Any, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """The backend, as torch.compile finds it.

    Raises UnsupportedError with every operator that dlc has no rule for and the lines that call it, unless they may fall back.
    """
    settings = Settings.of(options)

    def compiled(frozen: bool) -> Callable[[Any, Sequence[Any]], Any]:
        return lambda part, examples: _compiled(part, settings, frozen)

    aot = _common.aot_autograd(
        fw_compiler=compiled(False),
        bw_compiler=compiled(False),
        inference_compiler=compiled(True),
        decompositions=decompositions(),
        partition_fn=_partitioners.min_cut_rematerialization_partition,
    )
    return aot(graph, example_inputs)


def _compiled(module: Any, settings: Settings, frozen: bool) -> Any:
    """What runs a graph of AOTAutograd."""
    static = _static_inputs() if frozen else ()
    _without_checks(module)
    missing = [node for node in nodes_of(module.graph) if not is_ruled(node.op)]
    if not missing:
        return _boxed(_run(module, settings, static))
    if settings.fallback == "error":
        refuse_gaps(_NAME, missing)
    _log.warning("run by PyTorch, since dlc has no rule for them: %s", "; ".join(f"{n.op} at {place_of(n)}" for n in missing))
    return _boxed(_partitioned(module, settings))


def _without_checks(module: Any) -> None:
    """Takes checks out of a graph, and their tokens, for which PyTorch gives None, out of its results."""
    tokens = drop_checks(module.graph)
    output = module.graph.output_node()
    if tokens:
        output.args = (tuple(None if end in tokens else end for end in output.args[0]),)
        module.recompile()


def _run(module: Any, settings: Settings, static: Sequence[int]) -> Callable[[list[Any]], Sequence[Any]]:
    """What runs a graph of operators that there are rules for: dlc, or PyTorch where it has what dlc has not, such as complex
    numbers, and that may be."""
    try:
        return _Compiled(module, settings, static)
    except DlcError as error:
        if settings.fallback == "error":
            raise
        _log.warning(_REFUSED, error)
        return lambda arguments: module(*arguments)


def _static_inputs() -> Sequence[int]:
    """The places of parameters and buffers among the inputs of the graph that is being compiled."""
    context = torch._guards.TracingContext.try_get()
    known = context.fw_metadata if context is not None else None
    return tuple(known.static_input_indices) if known is not None else ()


def _boxed(run: Callable[[list[Any]], Any]) -> Any:
    """`run` in AOTAutograd's convention: it takes a list of arguments, which it may empty."""

    def call(arguments: list[Any]) -> Any:
        return run(arguments)

    call._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _partitioned(module: Any, settings: Settings) -> Callable[[list[Any]], Any]:
    """The graph with what dlc has rules for in compiled parts, and the rest as it is."""

    class Ruled(_support.OperatorSupportBase):
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            return node.op == "call_function" and is_ruled(operator_name(node.target))

    class Part(torch.nn.Module):
        def __init__(self, run: Callable[[list[Any]], Sequence[Any]], alone: bool) -> None:
            super().__init__()
            self.run, self.alone = run, alone

        def forward(self, *arguments: Any) -> Any:
            results = self.run(list(arguments))
            return results[0] if self.alone and isinstance(results, list | tuple) else results

    whole = _partitioner.CapabilityBasedPartitioner(module, Ruled()).partition_and_fuse()
    for name, part in list(whole.named_children()):
        alone = not isinstance(part.graph.output_node().args[0], list | tuple)
        setattr(whole, name, Part(_run(part, settings, ()), alone))
    return lambda arguments: torch.fx.Interpreter(whole).boxed_run(arguments)


@dataclass
class _Frozen:
    """A model whose constants are these tensors, as they were at these versions."""

    tensors: Sequence[weakref.ref[Any]]
    versions: Sequence[int]
    model: Model

    @staticmethod
    def of(tensors: Sequence[Any], model: Model) -> _Frozen:
        return _Frozen([weakref.ref(t) for t in tensors], _versions(tensors), model)

    def is_of(self, tensors: Sequence[Any]) -> bool:
        return all([known() is t for known, t in zip(self.tensors, tensors, strict=True)])


def _versions(tensors: Sequence[Any]) -> list[int]:
    return [0 if t.is_inference() else t._version for t in tensors]


class _Compiled:
    """A graph of AOTAutograd that dlc runs; `static` are the places of the arguments that are its constants."""

    def __init__(self, module: Any, settings: Settings, static: Sequence[int]) -> None:
        self._settings = settings
        # What runs it where dlc refuses to, if that may be.
        self._eager: Any = module if settings.fallback == "eager" else None
        self._refused = False
        # Meanwhile PyTorch computes with stand-ins alone, and a graph holds tensors as well.
        with _fakes.unset_fake_temporarily():
            self._read = Read.of(module)
        self._draws = draws(self._read.graph)
        # Places among the arguments, of which some are sizes.
        self._static = [k for k in static if k in self._read.tensors]
        self._left = [k for k in self._read.tensors if k not in self._static]
        self._frozen: list[_Frozen] = []
        self._models: dict[tuple[Any, ...], Model] = {}

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        """The results; the arguments are taken out of their list once they are read."""
        if self._refused:
            return self._eager(*arguments)
        read = self._read
        sizes = {symbol: arguments[k] for symbol, k in read.symbols.items()}
        try:
            model, places = self._prepared(arguments, sizes)
        except DlcError as error:
            if self._eager is None:
                raise
            _log.warning(_REFUSED, error)
            self._refused = True
            return self._eager(*arguments)
        arrays = [array_of(arguments[k]) for k in places]
        arguments.clear()
        if self._draws:
            arrays.append(np.asarray(torch.randint(2**31, ()).item()))
        results = [tensor_of(np.asarray(result)) for result in model.run_fitting(arrays)]
        return [result.of(results, sizes) for result in read.results]

    def _prepared(self, arguments: Sequence[Any], sizes: Mapping[str, int]) -> tuple[Model, Sequence[int]]:
        """The model for these arguments, and the places of those that it takes."""
        static = [arguments[k] for k in self._static]
        frozen = self._constants(static, sizes) if static else None
        if frozen is None:
            return self._model(self._read.graph, sizes), self._read.tensors
        return frozen.model, self._left

    def _constants(self, tensors: Sequence[Any], sizes: Mapping[str, int]) -> _Frozen | None:
        """The model with these tensors as constants; None from when on they are found to change."""
        for frozen in self._frozen:
            if frozen.is_of(tensors):
                if frozen.versions == _versions(tensors):
                    return frozen
                _log.info("%s: parameters changed after they were compiled for; they are inputs from now on", _NAME)
                self._static = []
                self._frozen.clear()
                return None
        self._frozen = [f for f in self._frozen if all(known() is not None for known in f.tensors)]
        if len(self._frozen) == _MOST_FROZEN:
            return None
        names = [self._read.names[k] for k in self._static]
        graph = self._read.graph
        constants = {name: array_of(t) for name, t in zip(names, tensors, strict=True)}
        left = [info for info in graph.inputs if info.name not in constants]
        model = self._made(replace(graph, inputs=left, constants={**graph.constants, **constants}), sizes)
        self._frozen.insert(0, _Frozen.of(tensors, model))
        return self._frozen[0]

    def _model(self, graph: Graph, sizes: Mapping[str, int]) -> Model:
        """The model whose parameters are inputs."""
        key = tuple(sizes[symbol] for symbol in loose_sizes(graph))
        if key not in self._models:
            self._models[key] = self._made(graph, sizes)
        return self._models[key]

    def _made(self, graph: Graph, sizes: Mapping[str, int]) -> Model:
        known = {symbol: sizes[symbol] for symbol in loose_sizes(graph)}
        return model_of(with_sizes(graph, known), _NAME, self._settings.target, self._settings.compiling)
