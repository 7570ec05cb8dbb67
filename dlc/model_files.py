"""Models in files: the program of one, what is compiled of it, and the page of what became of it.

The compiler is imported where it is needed: what was compiled before is found by the contents of the file, and only loaded.
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
from dlc.caching.model_cache import DUMPED, EXPORTED, TFLITE, CachedFile, reason_not_cached
from dlc.derived import Derived
from dlc.errors import UnsupportedError
from dlc.given_shapes import GivenShapes
from dlc.instrument.report import Progress, Report
from dlc.machine.garbage import collected_rarely
from dlc.options import Options
from dlc.runtime.models.border import BorderedModel
from dlc.runtime.models.model import Model
from dlc.runtime.models.variants import Variants
from dlc.runtime.opencl.build import Builder
from dlc.runtime.opencl.devices import choose
from dlc.target import Target, is_opencl, place_of, resolve

if TYPE_CHECKING:
    from dlc.backends.base import Backend
    from dlc.compiler import Program
    from dlc.explore import Page
    from dlc.frontend.onnx.graph import ModelFile
    from dlc.frontend.problems import OpenInputsError
    from dlc.ir import ModuleOp
    from dlc.measure.profile import Profile

# Is told the inputs of a model, and which of them may be left out, before it is compiled.
Examine: TypeAlias = Callable[[tuple[TensorInfo, ...], Collection[str]], None]


def compile_file(
    source: Path | bytes,
    target: str | Backend = "cpu",
    input_shapes: GivenShapes | None = None,
    options: Options | None = None,
    *,
    values: Mapping[str, NDArray[Any]] | None = None,
    derived: Derived | None = None,
    report: Report | None = None,
    progress: Progress | None = None,
    examine: Examine | None = None,
) -> Model:
    """The model in an ONNX file, given as its path or its bytes, or in a dumped module, or what is `derived` of it.

    Raises what compile_model raises.
    """
    options, report = options or Options(), report if report is not None else Report()
    compilation = _FileCompilation(source, target, input_shapes or {}, options, values or {}, derived, report)
    made = compilation.model(progress, examine or (lambda inputs, optional: None))
    # A dump is of what is compiled first.
    made.study = replace(compilation, options=replace(options, dump_ir=None))
    return made


def explore_file(
    source: Path | bytes,
    target: str | Backend = "cpu",
    input_shapes: GivenShapes | None = None,
    options: Options | None = None,
    *,
    values: Mapping[str, NDArray[Any]] | None = None,
    derived: Derived | None = None,
    inputs: Callable[[Program], Mapping[str, NDArray[Any]]] | None = None,
    progress: Progress | None = None,
) -> Page:
    """The page of the model in a file, as `compile_file` takes it, measured on what `inputs` gives for its program.

    Raises what compile_model raises, and UnsupportedError for a model that is compiled when it is called, without inputs.
    """
    from dlc.explore import explore
    from dlc.explore.sources import onnx_listing, tflite_listing
    from dlc.frontend.onnx.graph import ModelFile, load
    from dlc.frontend.tflite import is_tflite

    listed = source.suffix not in (DUMPED, EXPORTED, TFLITE) if isinstance(source, Path) else not is_tflite(source)
    model = load(source) if listed else source
    program = program_of(model, input_shapes, values, derived)

    def arrays(known: Program) -> list[NDArray[Any]]:
        assert inputs is not None, "what is measured is given"
        given = {**known.defaults, **inputs(known)}
        return [given[info.name] for info in known.inputs]

    # Mistakes in what is given are told at once, but where sizes are those that one compilation serves.
    measured = None if inputs is None else arrays(program) if program.is_static else arrays
    listing = None
    if isinstance(model, ModelFile):
        listing = onnx_listing(model)
    elif isinstance(model, bytes) or model.suffix == TFLITE:
        listing = tflite_listing(model)
    return explore(program, target, options, inputs=measured, source=listing, progress=progress)


def program_of(
    model: Path | bytes | ModelFile,
    input_shapes: GivenShapes | None,
    values: Mapping[str, NDArray[Any]] | None,
    derived: Derived | None,
) -> Program:
    """The program of a model, or of what is derived of it, before any pass."""
    from dlc.compiler import load_program

    if isinstance(model, Path) and model.suffix == EXPORTED:
        # Of other models no PyTorch need be there.
        from dlc.pytorch.exported import read_file

        if derived is not None or values:
            raise UnsupportedError(f"{model}: derivatives and constant inputs are made of ONNX models; torch.export makes them")
        return read_file(model, input_shapes or {})
    if derived is None:
        return load_program(model, input_shapes, values)
    from dlc.training.reading import derived_program

    return derived_program(model, derived, input_shapes, values)


@dataclass(frozen=True)
class _FileCompilation:
    """What is compiled of a file, and how; afterwards what is known of the model by who compiled it (Study)."""

    source: Path | bytes
    target: str | Backend
    input_shapes: GivenShapes
    options: Options
    values: Mapping[str, NDArray[Any]]
    derived: Derived | None
    report: Report

    def model(self, progress: Progress | None, examine: Examine) -> Model:
        """The model: as it was compiled before, compiled now, or when it is called."""
        with self.report.passing("key"):
            record, builder = self._record()
            file = self._cached_file(record)
        if file is not None:
            with self.report.passing("load"):
                if (artifact := file.find(self.report, builder)) is not None:
                    examine(artifact.host.inputs, ())
                    return artifact.model(self.options.num_threads)
        return self._compiled(file, progress, examine)

    def _record(self) -> tuple[Target, Builder | None]:
        """What to compile for, and what builds kernels for an OpenCL device; of dlc's own targets it takes no compiler."""
        target, options = self.target, self.options
        if isinstance(target, str) and is_opencl(target):
            device, record = choose(target, options.device)
            return record, Builder.of(device, options)
        if isinstance(target, str) and place_of(target) is None:
            return resolve(target), None
        from dlc.backends.registry import backend_of

        return backend_of(target).target, None

    def _cached_file(self, record: Target) -> CachedFile | None:
        """The file as the cache knows it; none if the program of the model is what is found there."""
        if not isinstance(self.source, Path) or self.derived is not None:
            return None
        if reason_not_cached(record, self.options, self.source) is not None:
            return None
        with suppress(OSError):  # the importer says what is wrong
            return CachedFile.look(self.source, self.input_shapes, record, self.options, self.values)
        return None

    @collected_rarely()
    def _compiled(self, file: CachedFile | None, progress: Progress | None, examine: Examine) -> Model:
        from dlc.compiler import compile
        from dlc.frontend.onnx.graph import load
        from dlc.frontend.problems import OpenInputsError
        from dlc.frontend.tflite import is_tflite

        with self.report.passing("import"):
            source = self.source
            model = source if isinstance(source, Path) or is_tflite(source) else load(source, whole=self.derived is not None)
            try:
                program = program_of(model, self.input_shapes, self.values, self.derived)
            except OpenInputsError as found:
                examine(found.inputs, ())
                return self._compiled_later("model" if isinstance(model, bytes) else model.stem, found)
            examine(program.inputs if program.border is None else program.border.inputs, program.defaults)
        # A file's key finds a program; what has a border is found by its program.
        file = file.imported(program.files) if file is not None and program.border is None else None
        program, border = program.kept(), program.border

        def again() -> ModuleOp:
            return program_of(model, self.input_shapes, self.values, self.derived).module

        made = compile(program, self.target, self.options, report=self.report, progress=progress, file=file, again=again)
        return made if border is None else BorderedModel(made, border)

    def _compiled_later(self, name: str, found: OpenInputsError) -> Model:
        """The model for each set of values, or of shapes, of the inputs that reading it takes."""
        from dlc.backends.registry import backend_of

        self.report.each_size = "reading it takes the shapes of its inputs"
        # A dump is of what is compiled first.
        first = iter([self.options])
        later = replace(self.options, dump_ir=None)

        def variant(more_shapes: Mapping[str, Any], more_values: Mapping[str, NDArray[Any]]) -> Model:
            shapes, known = {**self.input_shapes, **more_shapes}, {**self.values, **more_values}
            return compile_file(self.source, self.target, shapes, next(first, later), values=known)

        variants = Variants(name, found.inputs, found.outputs, found.values, variant)
        takes_device_arrays = backend_of(self.target, self.options.device).takes_device_arrays
        asked = variants.model(takes_device_arrays=takes_device_arrays)
        asked.num_threads = self.options.num_threads
        return asked

    def page(self, inputs: Mapping[str, NDArray[Any]] | None) -> Page:
        """The model's page, measured on these inputs, if there are any."""
        from dlc.frontend.problems import OpenInputsError

        try:
            return self._page(inputs, {})
        except OpenInputsError as found:
            if inputs is None or not found.values:
                raise
            # What shapes hang on is taken from the call, as the model does it.
            return self._page(inputs, {name: np.asarray(inputs[name]) for name in found.values})

    def _page(self, inputs: Mapping[str, NDArray[Any]] | None, known: Mapping[str, NDArray[Any]]) -> Page:
        return explore_file(
            self.source,
            self.target,
            self.input_shapes,
            self.options,
            values={**self.values, **known},
            derived=self.derived,
            inputs=None if inputs is None else lambda _: inputs,
        )

    def profile(self, model: Model, inputs: Sequence[Any]) -> Profile:
        """What a call takes."""
        from dlc.measure.profile import profile

        return profile(model, inputs, self.report.phases)
