"""Public entry points for models: compile_model, from_torch, devices and to_device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Unpack

from numpy.typing import ArrayLike, NDArray

from dlc.arrays import Array, require_unmasked, to_numpy
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.files.model_source import ModelSource, path_or_bytes
from dlc.instrument.report import Progress
from dlc.models.model_files import compile_file
from dlc.options import CompileOptions, Options
from dlc.runtime.models.model import Model
from dlc.runtime.opencl.array import DeviceArray, to_target
from dlc.runtime.opencl.devices import Device, all_devices
from dlc.shapes.shape_specs import parse_shape_specs
from dlc.training.model_transforms import TrainStep, parse_model_transform

if TYPE_CHECKING:
    from onnx import ModelProto

    from dlc.backends.base import Backend
    from dlc.numpy.apply import ArrayLike
    from dlc.runtime.collectives.mesh import Mesh


def compile_model(
    model: ModelSource | ModelProto,
    *,
    target: str | Backend = "cpu",
    input_shapes: Mapping[str, int | str | Sequence[int | str | None]] | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    vjp: str | Sequence[str] | None = None,
    jvp: str | Sequence[str] | None = None,
    hvp: str | None = None,
    wrt: str | Sequence[str] | None = None,
    train_step: TrainStep | None = None,
    parameters: str | Sequence[str] | None = None,
    progress: bool | Progress = False,
    **options: Unpack[CompileOptions],
) -> Model:
    """Compile a model for `target`.

    `model` is an ONNX model (a path, its bytes, a file open for reading, or a ModelProto), a TFLite model `m.tflite`
    (docs/tflite.md), a program saved with torch.export.save, `m.pt2` (docs/pytorch.md), or a StableHLO module (docs/jax.md).

    Args:
        target: `cpu` (this machine), `cpu:generic`, `cpu:avx2`, `cpu:avx512` (the last two also with the suffix `_vnni`, the
            last also with `_bf16`); `opencl` (the first OpenCL device that works, or the one that DLC_DEVICE names),
            `opencl:0:1` (platform 0, device 1); `reference`; or a backend of your own, as an object or as `FILE.py:NAME`
            (docs/extending.md).
        input_shapes: Shapes of inputs with symbolic dimensions. A dimension may stay symbolic, with a name and a range, or as
            in the file: `{"x": ("N:1..32", None, 224, 224)}`. `{"batch": 8}` sets the dimension that the file calls `batch`.
            Symbolic dimensions compile to one dynamic-shape program where possible; otherwise the model is specialized per set
            of input shapes at run time.
        input_values: Inputs to turn into constants; the model has no inputs of these names afterwards. Without it, inputs whose
            values determine shapes or branches (axes, repeats, a condition; see `model.values`) are read at each call, and the
            model is specialized for each of their values.
        vjp, jvp, hvp: Outputs whose derivative is compiled instead of the model, with respect to the inputs and weights `wrt`
            (docs/autodiff.md). The weights become inputs that a call may omit.
        train_step: A step of an optimizer to compile instead of the model (docs/autodiff.md).
        parameters: Names or patterns (`layer4.*`) of initializers to turn into inputs that a call may omit, including those
            that the file also lists as inputs. By default all initializers are constants.
        progress: True shows the current pass and kernel in a terminal or notebook. A function is called with one argument that
            has `phase`, `item`, `done` and `total`, and converts to text.
        options: `num_threads`, `cache`, `numerics` and others: see `CompileOptions`.

    Raises:
        ModelError: The file is malformed.
        UnsupportedError: The model uses something that dlc does not support; the message lists all of it.
        ShapeError: The shapes contradict the model.
        DeviceError: This machine cannot run the target.
    """
    compile_options = Options.from_keywords("dlc.compile_model", options)
    values = _parse_input_values(input_values)
    transform = parse_model_transform(vjp, jvp, hvp, train_step, wrt, parameters)
    with _progress_callback(progress) as on_progress:
        shapes = parse_shape_specs(input_shapes)
        return compile_file(
            path_or_bytes(model), target, shapes, compile_options, values=values, transform=transform, progress=on_progress
        )


def _parse_input_values(values: Mapping[str, ArrayLike] | None) -> dict[str, NDArray[Any]]:
    """Return input values as arrays by name. Raises ShapeError or DTypeError for a value that is not an array."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in (values or {}).items():
        try:
            arrays[name] = to_numpy(value)
        except (ShapeError, DTypeError) as error:
            raise type(error)(f"input_values: {name!r}: {error}") from error
        require_unmasked(value, f"input_values: {name!r}")
    return arrays


def _progress_callback(progress: bool | Progress) -> AbstractContextManager[Progress | None]:
    """Return a context manager whose value is the progress callback, or None."""
    if not isinstance(progress, bool) and not callable(progress):
        raise DlcError(f"progress: expected a bool or a function of one argument, got {progress!r}")
    if progress is not True:
        return nullcontext(progress or None)
    # Importing the terminal library is slow.
    from dlc.models.progress import progress_on

    return progress_on()


def from_torch(
    module: Any,
    example_inputs: Sequence[Any] = (),
    example_keywords: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target: str | Backend = "cpu",
    progress: bool | Progress = False,
    mesh: Mesh | None = None,
    placements: Mapping[str, Any] | None = None,
    **options: Unpack[CompileOptions],
) -> Model:
    """Compile a PyTorch module, or a torch.export.ExportedProgram, for arguments with the dtypes and shapes of
    the examples.

    Inputs are named like the arguments of `forward`, outputs by their position in the result: `output`, `output0`,
    `last_hidden_state`. `dynamic_shapes` is that of torch.export.export; dynamic dimensions compile to one dynamic-shape
    program where possible. Parameters and buffers become weights with their current values. Buffers that a call mutates become
    inputs that it may omit. Inputs that it mutates must be writable. See `compile_model` for `target` and `progress`, and
    `CompileOptions` for the options.

    With a `mesh`, all ranks run the model together (docs/distributed.md), on equal global arrays. `placements` annotates inputs
    and parameters by name, such as `0.weight`: DTensor's placements, one for each axis of the mesh, or a `dlc.P`.

    Raises UnsupportedError if PyTorch is not installed, and for operators without a rule in dlc: the message lists all of them
    with the lines that call them. Raises ModelError for a module that torch cannot export.
    """
    # torch is an optional dependency.
    from dlc.pytorch.exported_programs import exported_model

    compile_options = Options.from_keywords("dlc.from_torch", options)
    with _progress_callback(progress) as on_progress:
        return exported_model(
            module,
            example_inputs,
            example_keywords or {},
            dynamic_shapes,
            target,
            compile_options,
            on_progress,
            mesh,
            placements,
        )


def devices() -> tuple[Device, ...]:
    """Return the OpenCL devices of this machine; `str(device)` starts with the target name of the device."""
    return all_devices()


def to_device(array: ArrayLike, target: str) -> Array | DeviceArray:
    """Copy an array to a target, `cpu` or an OpenCL device; return the array itself if it is already there.

    Raises DeviceError for other targets and for a device that does not exist.
    """
    return to_target(array, target, Options().device)
