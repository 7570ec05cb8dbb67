"""Backend of torch.compile: `torch.compile(module, backend="dlc")`.

    torch.compile ─ Dynamo: FX graph of the call ─ AOTAutograd: functionalized graphs ─┬─ forward
                                                                                       └─ backward

Each graph is compiled to one program when it first runs. For inference, parameters and buffers are constants of the program, so
that their layout is computed once; if they are found to have changed, they become inputs. Tensors on the CPU are passed in and
out without copies.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dlc.errors import DlcError, UnsupportedError
from dlc.options import CompileOptions, Options
from dlc.pytorch.aot_graphs import AotGraph, GraphCall
from dlc.pytorch.complex_arrays import join_arrays, split_arrays, split_complex_values
from dlc.pytorch.fx_conversion import (
    constant_arrays,
    convert_nodes,
    decompositions,
    erase_assertions,
    has_rule,
    operator_name,
    tensor_to_array,
)
from dlc.pytorch.fx_graph import FxGraph
from dlc.pytorch.graph_compilation import build_model, substitute_sizes, unbound_symbols
from dlc.pytorch.interpreter import draws_random_numbers, node_location, raise_unsupported_nodes
from dlc.pytorch.torch_import import torch, torch_module
from dlc.runtime.models.model import Model

_common, _partitioners = torch_module("torch._dynamo.backends.common"), torch_module("torch._functorch.partitioners")
_partitioner, _support = (torch_module(f"torch.fx.passes.{name}") for name in ("infra.partitioner", "operator_support"))
_fakes = torch_module("torch._subclasses.fake_tensor")
_log = logging.getLogger("dlc.pytorch")
_FALLBACK = "fallback to PyTorch, since dlc cannot compile the graph: %s"
_NAME = "torch.compile"
# Maximum modules with the same graph that are compiled with parameters as constants; for further modules, they are inputs.
_MAX_CONSTANT_MODELS = 64


# Compilation options that do not apply to graphs: PyTorch compiles several per module, and waits for each call.
_OPTIONS_OF_ONE_PROGRAM = ("dump_ir", "pipeline", "check_each_pass", "streams")


@dataclass(frozen=True)
class BackendSettings:
    """The `options` of torch.compile.

    `fallback` is "error" or "eager": whether an operator without a rule raises an error or is run by PyTorch. The others are
    the target and the options of `dlc.compile_model` that apply to every graph.
    """

    fallback: str
    target: str
    compile_options: Options

    @staticmethod
    def of(options: dict[str, Any] | None) -> BackendSettings:
        """Parse `options`. Raises DlcError for an unknown option or value."""
        values = {"fallback": "error", "target": "cpu", **(options or {})}
        names = [
            "fallback",
            "target",
            *(name for name in CompileOptions.__annotations__ if name not in _OPTIONS_OF_ONE_PROGRAM),
        ]
        if unknown := sorted(values.keys() - set(names)):
            raise DlcError(
                f"{_NAME}: unknown options {', '.join(unknown)}; the options of the backend dlc are {', '.join(names)}"
            )
        fallback, target = values.pop("fallback"), values.pop("target")
        if fallback not in ("error", "eager"):
            raise DlcError(f"{_NAME}: options: fallback {fallback!r}; expected 'error' or 'eager'")
        try:
            return BackendSettings(fallback, target, Options.of(**values))
        except UnsupportedError as error:
            raise DlcError(f"{_NAME}: options: {error}") from None


def dlc(graph: Any, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """Compile a graph: the backend function that torch.compile calls.

    Raises UnsupportedError with every operator that has no rule and the lines that call it, unless they may fall back to
    PyTorch.
    """
    settings = BackendSettings.of(options)

    def compiler_for(frozen: bool = False, has_views: bool = True) -> Callable[[Any, Sequence[Any]], Any]:
        return lambda module, examples: _compile_module(module, settings, frozen, has_views)

    aot = _common.aot_autograd(
        fw_compiler=compiler_for(),
        # Gradients must not alias, since autograd may accumulate into them in place.
        bw_compiler=compiler_for(has_views=False),
        inference_compiler=compiler_for(frozen=True),
        decompositions=decompositions(),
        partition_fn=_partitioners.min_cut_rematerialization_partition,
    )
    return aot(graph, example_inputs)


def _compile_module(module: Any, settings: BackendSettings, frozen: bool, has_views: bool) -> Any:
    """Return a callable that runs a graph of AOTAutograd, whose results may be views of arguments if `has_views`."""
    static = _static_inputs() if frozen else ()
    _remove_assertions(module)
    try:
        unsupported = [node for node in convert_nodes(module.graph) if not has_rule(node.op)]
    except DlcError as error:
        return _box_arguments(_fall_back(module, settings, error))
    if not unsupported:
        return _box_arguments(_run(module, settings, static, has_views))
    if settings.fallback == "error":
        raise_unsupported_nodes(_NAME, unsupported)
    _log.warning(
        "fallback to PyTorch for operators without a rule: %s", "; ".join(f"{n.op} at {node_location(n)}" for n in unsupported)
    )
    return _box_arguments(_compile_partitions(module, settings, has_views))


def _remove_assertions(module: Any) -> None:
    """Remove assertions from a graph, and their effect tokens, for which PyTorch expects None, from its results."""
    tokens = erase_assertions(module.graph)
    output = module.graph.output_node()
    if tokens:
        output.args = (tuple(None if end in tokens else end for end in output.args[0]),)
        module.recompile()


def _run(
    module: Any, settings: BackendSettings, static: Sequence[int], has_views: bool
) -> Callable[[list[Any]], Sequence[Any]]:
    """Return a callable that runs a graph of operators with rules.

    It runs the graph by dlc, or by PyTorch if dlc cannot compile it and may fall back.
    """
    try:
        return _CompiledGraph(module, settings, static, has_views)
    except DlcError as error:
        return _fall_back(module, settings, error)


def _fall_back(module: Any, settings: BackendSettings, error: DlcError) -> Callable[[list[Any]], Sequence[Any]]:
    """Return a callable that runs a graph by PyTorch; raise `error` unless the settings allow that."""
    if settings.fallback == "error":
        raise error
    _log.warning(_FALLBACK, error)
    return lambda arguments: module(*arguments)


def _static_inputs() -> Sequence[int]:
    """Return the positions of parameters and buffers among the inputs of the graph that is being compiled."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return tuple(metadata.static_input_indices) if metadata is not None else ()


def _box_arguments(run: Callable[[list[Any]], Any]) -> Any:
    """Wrap `run` in AOTAutograd's boxed calling convention: it takes one list of arguments, which it may clear."""

    def call(arguments: list[Any]) -> Any:
        return run(arguments)

    call._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _compile_partitions(module: Any, settings: BackendSettings, has_views: bool) -> Callable[[list[Any]], Any]:
    """Partition the graph: subgraphs of operators with rules are compiled, PyTorch runs the rest."""

    class RuleSupport(_support.OperatorSupportBase):
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            return node.op == "call_function" and has_rule(operator_name(node.target))

    class CompiledSubgraph(torch.nn.Module):
        def __init__(self, run: Callable[[list[Any]], Sequence[Any]], has_single_result: bool) -> None:
            super().__init__()
            self.run, self.has_single_result = run, has_single_result

        def forward(self, *arguments: Any) -> Any:
            results = self.run(list(arguments))
            return results[0] if self.has_single_result and isinstance(results, list | tuple) else results

    partitioned = _partitioner.CapabilityBasedPartitioner(module, RuleSupport()).partition_and_fuse()
    for name, subgraph in list(partitioned.named_children()):
        has_single_result = not isinstance(subgraph.graph.output_node().args[0], list | tuple)
        setattr(partitioned, name, CompiledSubgraph(_run(subgraph, settings, (), has_views), has_single_result))
    return lambda arguments: torch.fx.Interpreter(partitioned).boxed_run(arguments)


@dataclass
class _ConstantModel:
    """A model that has these tensors as constants, and the versions of the tensors it was compiled with."""

    tensors: Sequence[weakref.ref[Any]]
    versions: Sequence[int]
    model: Model

    @staticmethod
    def of(tensors: Sequence[Any], model: Model) -> _ConstantModel:
        return _ConstantModel([weakref.ref(t) for t in tensors], _versions(tensors), model)

    def matches(self, tensors: Sequence[Any]) -> bool:
        return all([reference() is t for reference, t in zip(self.tensors, tensors, strict=True)])


def _versions(tensors: Sequence[Any]) -> list[int]:
    return [0 if t.is_inference() else t._version for t in tensors]


class _CompiledGraph:
    """A graph of AOTAutograd compiled by dlc; `static` are the positions of the arguments that become constants."""

    def __init__(self, module: Any, settings: BackendSettings, static: Sequence[int], has_views: bool) -> None:
        self._settings = settings
        # The fallback if compilation fails, if allowed.
        self._eager: Any = module if settings.fallback == "eager" else None
        self._falls_back = False
        # A compiler runs in fake tensor mode, but the constants of the graph are real tensors.
        with _fakes.unset_fake_temporarily():
            self._aot = AotGraph.of(module, has_views)
        self._needs_seed = draws_random_numbers(self._aot.graph)
        # Positions among the arguments, some of which are sizes.
        self._static = [k for k in static if k in self._aot.tensors]
        self._dynamic = [k for k in self._aot.tensors if k not in self._static]
        self._constant_models: list[_ConstantModel] = []
        self._models: dict[tuple[Any, ...], Model] = {}

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        """Run the graph. The list of arguments is cleared once they are read."""
        if self._falls_back:
            return self._eager(*arguments)
        aot = self._aot
        sizes = {symbol: arguments[k] for symbol, k in aot.symbols.items()}
        try:
            model, positions = self._select_model(arguments, sizes)
        except DlcError as error:
            if self._eager is None:
                raise
            _log.warning(_FALLBACK, error)
            self._falls_back = True
            return self._eager(*arguments)
        inputs = split_arrays([tensor_to_array(arguments[k]) for k in positions])
        if self._needs_seed:
            inputs.append(np.asarray(torch.randint(2**31, ()).item()))
        arrays = join_arrays([np.asarray(result) for result in model.check_and_run(inputs)], aot.graph.outputs)
        numbers = {**sizes, **{symbol: arrays[k].item() for symbol, k in aot.elements.items()}}
        call = GraphCall(arguments, numbers, arrays)
        results = [result.evaluate(call) for result in aot.results]
        arguments.clear()
        return results

    def _select_model(self, arguments: Sequence[Any], sizes: Mapping[str, int]) -> tuple[Model, Sequence[int]]:
        """Return the model for these arguments, and the positions of the arguments that it takes."""
        static = [arguments[k] for k in self._static]
        specialized = self._constants(static, sizes) if static else None
        if specialized is None:
            return self._model(self._aot.graph, sizes), self._aot.tensors
        return specialized.model, self._dynamic

    def _constants(self, tensors: Sequence[Any], sizes: Mapping[str, int]) -> _ConstantModel | None:
        """Return the model with these tensors as constants; None once they have been found to change."""
        for cached in self._constant_models:
            if cached.matches(tensors):
                if cached.versions == _versions(tensors):
                    return cached
                _log.info("%s: parameters changed after compilation; from now on they are inputs", _NAME)
                self._static = []
                self._constant_models.clear()
                return None
        # Drop models whose tensors were garbage-collected.
        self._constant_models = [m for m in self._constant_models if all(reference() is not None for reference in m.tensors)]
        if len(self._constant_models) == _MAX_CONSTANT_MODELS:
            return None
        names = [self._aot.names[k] for k in self._static]
        graph = self._aot.graph
        constants = constant_arrays(dict(zip(names, tensors, strict=True)))
        inputs = [info for info in graph.inputs if info.name not in constants]
        model = self._compile(replace(graph, inputs=inputs, constants={**graph.constants, **constants}), sizes)
        self._constant_models.insert(0, _ConstantModel.of(tensors, model))
        return self._constant_models[0]

    def _model(self, graph: FxGraph, sizes: Mapping[str, int]) -> Model:
        """Return the model that has the parameters as inputs."""
        key = tuple(sizes[symbol] for symbol in unbound_symbols(graph))
        if key not in self._models:
            self._models[key] = self._compile(graph, sizes)
        return self._models[key]

    def _compile(self, graph: FxGraph, sizes: Mapping[str, int]) -> Model:
        static_sizes = {symbol: sizes[symbol] for symbol in unbound_symbols(graph)}
        graph = split_complex_values(substitute_sizes(graph, static_sizes))
        return build_model(graph, _NAME, self._settings.target, self._settings.compile_options)
