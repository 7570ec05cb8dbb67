"""Compile, inspect and profile models in files.

The compiler is imported only when it is needed: a cached program is loaded by the digest of the model file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.caching.model_cache import MLIR_SUFFIX, TFLITE_SUFFIX, TORCH_EXPORT_SUFFIX, CachedFile, reason_not_cached
from dlc.errors import UnsupportedError
from dlc.instrument.report import Progress, Report
from dlc.machine.garbage_collection import infrequent_collection
from dlc.models.target_descriptions import target_description
from dlc.options import Options
from dlc.runtime.models.io_conversion import ConvertedModel
from dlc.runtime.models.model import Model
from dlc.runtime.models.mutating_model import MutatingModel
from dlc.runtime.models.specializations import Specialization
from dlc.runtime.models.specialized_model import ModelCall, SpecializedModel
from dlc.shapes.dims import is_static, substitute
from dlc.shapes.shape_specs import ShapeSpecs
from dlc.target import Target, is_opencl
from dlc.training.model_transforms import ModelTransform

if TYPE_CHECKING:
    from dlc.backends.base import Backend
    from dlc.compiler import Program
    from dlc.explore import Page
    from dlc.frontend.onnx.graph import ModelFile
    from dlc.frontend.problems import SpecializationRequiredError
    from dlc.ir import ModuleOp
    from dlc.measure.profile import Profile
    from dlc.runtime.opencl.build import Builder

# Called before a model is compiled, with its inputs and the names of the inputs that a call may omit.
Examine: TypeAlias = Callable[[tuple[TensorInfo, ...], Collection[str]], None]


def compile_file(
    source: Path | bytes,
    target: str | Backend = "cpu",
    input_shapes: ShapeSpecs | None = None,
    options: Options | None = None,
    *,
    values: Mapping[str, NDArray[Any]] | None = None,
    transform: ModelTransform | None = None,
    report: Report | None = None,
    progress: Progress | None = None,
    examine: Examine | None = None,
) -> Model:
    """Compile a model from a path or bytes; `transform` requests a derivative or training step of it instead.

    The path is that of an ONNX, TFLite or torch.export file, or of a dumped module. Raises what compile_model raises.
    """
    options, report = options or Options(), report if report is not None else Report()
    compilation = _FileCompilation(source, target, input_shapes or {}, options, values or {}, transform, report)
    compiled = compilation.model(progress, examine or (lambda inputs, optional: None))
    # Only the first compilation is dumped.
    compiled.inspector = replace(compilation, options=replace(options, dump_ir=None))
    return compiled


def explore_file(
    source: Path | bytes,
    target: str | Backend = "cpu",
    input_shapes: ShapeSpecs | None = None,
    options: Options | None = None,
    *,
    values: Mapping[str, NDArray[Any]] | None = None,
    transform: ModelTransform | None = None,
    inputs: Callable[[Program], Mapping[str, NDArray[Any]]] | None = None,
    progress: Progress | None = None,
) -> Page:
    """Return the report of a model in a file (see `compile_file`), measured on the inputs that `inputs` returns for its
    program.

    Raises what compile_model raises, and UnsupportedError, without inputs, for a model that is specialized at run time.
    """
    from dlc.explore import explore
    from dlc.explore.source_listings import onnx_listing, tflite_listing
    from dlc.frontend.onnx.graph import ModelFile, load

    model = load(source) if _is_onnx(source) else source
    program = import_program(model, input_shapes, values, transform)

    def arrays(static_program: Program) -> list[NDArray[Any]]:
        assert inputs is not None, "measuring needs inputs"
        arrays_by_name = {**static_program.defaults, **inputs(static_program)}
        return [arrays_by_name[info.name] for info in static_program.inputs]

    # Report invalid inputs early; with symbolic sizes, inputs can be created only after the sizes are chosen.
    measured = None if inputs is None else arrays(program) if program.is_static else arrays
    listing = None
    if isinstance(model, ModelFile):
        listing = onnx_listing(model)
    elif isinstance(model, bytes) or model.suffix == TFLITE_SUFFIX:
        listing = tflite_listing(model)
    return explore(program, target, options, inputs=measured, source=listing, progress=progress)


def import_program(
    model: Path | bytes | ModelFile,
    input_shapes: ShapeSpecs | None,
    values: Mapping[str, NDArray[Any]] | None,
    transform: ModelTransform | None,
) -> Program:
    """Import the program of a model, or of the requested `transform` of it, before any pass."""
    from dlc.compiler import load_program

    if isinstance(model, Path) and model.suffix == TORCH_EXPORT_SUFFIX:
        # Only torch.export files need PyTorch.
        from dlc.pytorch.exported_programs import load_exported_program

        if transform is not None or values:
            raise UnsupportedError(
                f"{model}: derivatives and constant inputs are supported for ONNX models only; apply them in PyTorch first"
            )
        return load_exported_program(model, input_shapes or {})
    if transform is None:
        return load_program(model, input_shapes, values)
    from dlc.training.derived_program import derived_program

    return derived_program(model, transform, input_shapes, values)


def _is_onnx(source: Path | bytes) -> bool:
    from dlc.frontend.tflite import is_tflite

    if isinstance(source, Path):
        return source.suffix not in (MLIR_SUFFIX, TORCH_EXPORT_SUFFIX, TFLITE_SUFFIX, ".dlc")
    return not is_tflite(source)


@dataclass(frozen=True)
class _FileCompilation:
    """The settings of a file's compilation; afterwards the `ModelInspector` of the compiled model."""

    source: Path | bytes
    target: str | Backend
    input_shapes: ShapeSpecs
    options: Options
    values: Mapping[str, NDArray[Any]]
    transform: ModelTransform | None
    report: Report

    def model(self, progress: Progress | None, examine: Examine) -> Model:
        """Return the model: loaded from the cache, compiled now, or specialized when it is called."""
        with self.report.timed_total("key"):
            target, builder = self._resolve_target()
            file = self._cached_file(target)
        if file is not None:
            with self.report.timed_total("load"):
                if (artifact := file.find(self.report, builder)) is not None:
                    examine(artifact.host.inputs, ())
                    return artifact.model(self.options)
        return self._compile(file, progress, examine)

    def _resolve_target(self) -> tuple[Target, Builder | None]:
        """Return the target description, and the kernel builder of an OpenCL device."""
        target, options = self.target, self.options
        if isinstance(target, str) and is_opencl(target):
            # Imported here because models for processors need no OpenCL.
            from dlc.runtime.opencl.build import Builder
            from dlc.runtime.opencl.devices import select_device

            device, device_target = select_device(target, options.device)
            return device_target, Builder.of(device, options)
        return target_description(target, options.device), None

    def _cached_file(self, target: Target) -> CachedFile | None:
        """Return the file with its cache key; None if the cache is not keyed by the file."""
        if not isinstance(self.source, Path) or self.transform is not None:
            return None
        if reason_not_cached(target, self.options, self.source) is not None:
            return None
        with suppress(OSError):  # The importer reports the error.
            return CachedFile.identify(self.source, self.input_shapes, target, self.options, self.values)
        return None

    @infrequent_collection()
    def _compile(self, file: CachedFile | None, progress: Progress | None, examine: Examine) -> Model:
        from dlc.compiler import compile
        from dlc.frontend.onnx.graph import load
        from dlc.frontend.problems import SpecializationRequiredError

        with self.report.timed_total("import"):
            # An ONNX file is parsed once for all specializations.
            model = load(self.source, with_large_tensors=self.transform is not None) if _is_onnx(self.source) else self.source
            try:
                program = import_program(model, self.input_shapes, self.values, self.transform)
            except SpecializationRequiredError as error:
                examine(error.inputs, ())
                return self._compile_per_call(model, error)
            examine(program.inputs if program.io_signature is None else program.io_signature.inputs, program.defaults)
        # A model with converted or mutated inputs is cached under the key of its program.
        is_plain = program.io_signature is None and not program.mutations
        file = file.after_import(program.files) if file is not None and is_plain else None
        program, io_signature, mutations = program.owning_module(), program.io_signature, program.mutations

        def rebuild_module() -> ModuleOp:
            return import_program(model, self.input_shapes, self.values, self.transform).module

        compiled = compile(
            program, self.target, self.options, report=self.report, progress=progress, file=file, rebuild_module=rebuild_module
        )
        if mutations:
            return MutatingModel(compiled, mutations)
        return compiled if io_signature is None else ConvertedModel(compiled, io_signature)

    def _compile_per_call(self, source: Path | bytes | ModelFile, error: SpecializationRequiredError) -> Model:
        """Return a model that is specialized at run time for the input values or shapes that the import depends on.

        A specialization serves all sizes with the same outcomes of comparisons, where possible.
        """
        from dlc.backends.registry import backend_of
        from dlc.compiler import import_for, specializer_for

        self.report.specialization_reason = "importing it depends on the shapes of its inputs"
        name = "model" if isinstance(source, bytes) else source.stem
        specializer = specializer_for(name, self.target, self.options)
        symbolic_inputs = [i for i in error.inputs if not is_static(i.shape) and i.name not in self.input_shapes]

        def build(call: ModelCall) -> Specialization[Model]:
            shapes: dict[str, Any] = {**self.input_shapes, **call.shapes}
            input_values = {**self.values, **call.values}

            def read(static: Mapping[str, int]) -> Program:
                sizes = {info.name: [substitute(size, static) for size in info.shape] for info in symbolic_inputs}
                partial_shapes = {name: [s if isinstance(s, int) else None for s in shape] for name, shape in sizes.items()}
                return import_for(
                    call.sizes, lambda: import_program(source, {**shapes, **partial_shapes}, input_values, self.transform)
                )

            return specializer.specialize(
                call.sizes,
                read,
                lambda: compile_file(self.source, self.target, shapes, specializer.next_options(), values=input_values),
            )

        specialized = SpecializedModel(name, tuple(error.inputs), tuple(error.outputs), build, tuple(error.values))
        takes_device_arrays = backend_of(self.target, self.options.device).takes_device_arrays
        model = specialized.model(takes_device_arrays=takes_device_arrays)
        model.set_execution(self.options)
        return model

    def page(self, inputs: Mapping[str, NDArray[Any]] | None) -> Page:
        """Return the model's report, measured on these inputs if there are any."""
        from dlc.frontend.problems import SpecializationRequiredError

        try:
            return self._page(inputs, {})
        except SpecializationRequiredError as error:
            if inputs is None or not error.values:
                raise
            # Shapes depend on the values of some inputs: use the values of the call as constants.
            return self._page(inputs, {name: np.asarray(inputs[name]) for name in error.values})

    def _page(self, inputs: Mapping[str, NDArray[Any]] | None, constant_inputs: Mapping[str, NDArray[Any]]) -> Page:
        return explore_file(
            self.source,
            self.target,
            self.input_shapes,
            self.options,
            values={**self.values, **constant_inputs},
            transform=self.transform,
            inputs=None if inputs is None else lambda _: inputs,
        )

    def profile(self, model: Model, inputs: Sequence[Any]) -> Profile:
        """Profile a call with these inputs."""
        from dlc.measure.profile import profile

        return profile(model, inputs, self.report.phases)
