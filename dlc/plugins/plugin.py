"""The declaration of a plug-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any

from dlc.errors import UnsupportedError


@dataclass(frozen=True)
class PassPlacement:
    """A pass and its position in the pipelines of all targets: after or before another pass, or at the end of a stage.

    A pass whose anchor is not in a pipeline, such as `winograd` with strict numerics, is placed where the anchor would run.
    If the anchor runs several times, `before` refers to the first run, and `after` to the last.
    """

    pass_class: Any
    after: str | None = None
    before: str | None = None
    stage: str | None = None

    def __post_init__(self) -> None:
        if sum(anchor is not None for anchor in (self.after, self.before, self.stage)) != 1:
            raise UnsupportedError(
                f"PassPlacement({self.pass_class.__name__}): expected one of after, before and stage, got "
                f"after={self.after!r}, before={self.before!r}, stage={self.stage!r}"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Plugin:
    """A plug-in: a name, and the entries that it adds to dlc's tables.

    An entry point of the group `dlc.plugins` refers to one; `dlc.register` takes one. A table that needs further packages can
    be given as `"module:variable"`: it is imported when its frontend is used.

    Attributes:
        name: The name in messages and in `dlc plugins`.
        version: The version in cache keys; by default that of the distribution of the entry point.
        ops: Op classes, derived from the interfaces in `dlc.extend.ops`. Their names begin with the name of a dialect.
        library_kernels: The loops of library ops: functions (op, *references) in the language of `dlc.kernels`.
        partials: Partial derivatives of elementwise ops, a tuple with one formula per operand.
        jvp_rules: Forward-mode rules of other ops.
        transpose_rules: Transpose rules of linear ops.
        no_derivative: Ops without a derivative, with the reason.
        batching_rules: Batching rules, by op class or base class.
        no_batching: Ops without a batching rule, with the reason.
        passes: Passes and their positions.
        onnx_converters: A `dlc.extend.onnx.ConverterTable` per domain.
        tflite_converters: Converters of TFLite operators, the `entries` of a table; a custom operator is `CUSTOM name`.
        stablehlo_converters: Converters of StableHLO ops, by name.
        pytorch_rules: Rules of PyTorch operators, by name: `acme::soft_clip`.
        calibration_methods: Methods of `dlc.quantize` that choose the range of an activation.
        gguf_types: Block formats of weights in GGUF files, a `GgufType` by number.
        targets: Backends, by target name.
        samples: Samples of the ops, from which `python -m dlc.testing` derives tests.
    """

    name: str
    version: str | None = None
    ops: Sequence[type[Any]] | str = ()
    library_kernels: Mapping[type[Any], Any] | str = field(default_factory=dict[type[Any], Any])
    partials: Mapping[type[Any], tuple[Any, ...]] | str = field(default_factory=dict[type[Any], tuple[Any, ...]])
    jvp_rules: Mapping[type[Any], Any] | str = field(default_factory=dict[type[Any], Any])
    transpose_rules: Mapping[type[Any], Any] | str = field(default_factory=dict[type[Any], Any])
    no_derivative: Mapping[type[Any], str] | str = field(default_factory=dict[type[Any], str])
    batching_rules: Mapping[type[Any], Any] | str = field(default_factory=dict[type[Any], Any])
    no_batching: Mapping[type[Any], str] | str = field(default_factory=dict[type[Any], str])
    passes: Sequence[PassPlacement] | str = ()
    onnx_converters: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    tflite_converters: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    stablehlo_converters: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    pytorch_rules: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    calibration_methods: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    gguf_types: Mapping[int, Any] | str = field(default_factory=dict[int, Any])
    targets: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    samples: Sequence[Any] | str = ()
    # The file that declares the plug-in.
    origin: str = field(init=False, default="")
    # The module that declares it.
    module: str = field(init=False, default="")

    def __post_init__(self) -> None:
        # The frame that calls the constructor: `__init__` of a dataclass is a frame as well.
        frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
        object.__setattr__(self, "origin", frame.f_code.co_filename)
        object.__setattr__(self, "module", frame.f_globals.get("__name__", ""))

    def contribution(self, table: str) -> Any:
        """Return the entries for a table, imported first if they are given by name. Raises the exceptions of the import."""
        entries = getattr(self, table)
        if not isinstance(entries, str):
            return entries
        module, _, variable = entries.partition(":")
        return getattr(import_module(module), variable)

    def tables(self) -> Iterator[str]:
        """Yield the names of the tables to which the plug-in adds entries."""
        others = ("name", "version", "origin", "module", "samples")
        return (f.name for f in fields(self) if f.name not in others and getattr(self, f.name))
