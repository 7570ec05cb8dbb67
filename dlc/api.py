"""Public entry points for models: compile_model, from_torch, devices and to_device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from dlc.arrays import Array, require_unmasked, to_numpy
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.files.atomic_writes import to_path
from dlc.files.model_source import ModelSource, path_or_bytes
from dlc.instrument.report import Progress
from dlc.model_files import compile_file
from dlc.model_transforms import TrainStep, parse_model_transform
from dlc.options import Options
from dlc.runtime.models.model import Model
from dlc.runtime.opencl.array import DeviceArray, to_target
from dlc.runtime.opencl.devices import Device, all_devices
from dlc.shapes.shape_specs import parse_shape_specs

if TYPE_CHECKING:
    from onnx import ModelProto

    from dlc.backends.base import Backend
    from dlc.numpy.apply import ArrayLike


def compile_model(
    model: ModelSource | ModelProto,
    *,
    target: str | Backend = "cpu",
    input_shapes: Mapping[str, int | str | Sequence[int | str | None]] | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    num_threads: int | None = None,
    streams: int = 1,
    cpus: Iterable[int] | None = None,
    dump_ir: str | PathLike[str] | None = None,
    pipeline: str | None = None,
    check_each_pass: bool = False,
    cache: bool | None = None,
    numerics: str = "default",
    precision: str = "f32",
    weights: str = "float",
    group: int = 32,
    tune: float = 0.0,
    inter_op: str = "auto",
    vjp: str | Sequence[str] | None = None,
    jvp: str | Sequence[str] | None = None,
    hvp: str | None = None,
    wrt: str | Sequence[str] | None = None,
    train_step: TrainStep | None = None,
    parameters: str | Sequence[str] | None = None,
    progress: bool | Progress = False,
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
        num_threads: Number of threads; by default one per processor that this process may use.
        streams: Number of submitted calls that run at once, each with its share of the threads (docs/concurrency.md).
        cpus: The processors on which the threads of the model run, such as `range(4)`; by default those of the process.
        dump_ir: Write the IR after every pass to this folder.
        pipeline: Passes to run instead of the target's, such as `"a,b{k=1}"`.
        check_each_pass: Verify every pass numerically during the first call, on its inputs. CompileError names the first pass
            after which results are wrong, the kernel or op, and the nodes that it comes from.
        cache: Store programs compiled for CPUs and OpenCL devices in the cache, and load them from it, keyed by the content of
            the file.
        numerics: `"strict"` disables transforms that change rounding (docs/numerics.md).
        precision: `bf16` or `f16` rounds the operands of f32 contractions with weights (docs/numerics.md).
        weights: `int8` or `int4` quantizes the large weights of matrix products, with one scale per `group` of weights: less
            memory, different results (docs/weight_only_quantization.md).
        group: Group size of weight-only quantization: the number of weights per scale.
        tune: Seconds to spend on measuring tile plans on this machine; results are cached.
        inter_op: Whether independent kernels that are too small to use all threads run concurrently on a CPU: `auto` (if the
            cost model expects a gain), `on` or `off` (docs/concurrency.md).
        vjp, jvp, hvp: Outputs whose derivative is compiled instead of the model, with respect to the inputs and weights `wrt`
            (docs/autodiff.md). The weights become inputs that a call may omit.
        train_step: A step of an optimizer to compile instead of the model (docs/autodiff.md).
        parameters: Names or patterns (`layer4.*`) of initializers to turn into inputs that a call may omit, including those
            that the file also lists as inputs. By default all initializers are constants.
        progress: True shows the current pass and kernel in a terminal or notebook. A function is called with one argument that
            has `phase`, `item`, `done` and `total`, and converts to text.

    Raises:
        ModelError: The file is malformed.
        UnsupportedError: The model uses something that dlc does not support; the message lists all of it.
        ShapeError: The shapes contradict the model.
        DeviceError: This machine cannot run the target.
    """
    folder = to_path(dump_ir) if dump_ir is not None else None
    options = Options.of(
        num_threads=num_threads,
        streams=streams,
        cpus=cpus,
        dump_ir=folder,
        pipeline=pipeline,
        check_each_pass=check_each_pass,
        cache=cache,
        numerics=numerics,
        precision=precision,
        weights=weights,
        group=group,
        tune=tune,
        inter_op=inter_op,
    )
    values = _parse_input_values(input_values)
    transform = parse_model_transform(vjp, jvp, hvp, train_step, wrt, parameters)
    with _progress_callback(progress) as on_progress:
        shapes = parse_shape_specs(input_shapes)
        return compile_file(
            path_or_bytes(model), target, shapes, options, values=values, transform=transform, progress=on_progress
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
    from dlc.progress import progress_on

    return progress_on()


def from_torch(
    module: Any,
    example_inputs: Sequence[Any] = (),
    example_keywords: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target: str | Backend = "cpu",
    num_threads: int | None = None,
    streams: int = 1,
    cpus: Iterable[int] | None = None,
    dump_ir: str | PathLike[str] | None = None,
    pipeline: str | None = None,
    check_each_pass: bool = False,
    cache: bool | None = None,
    numerics: str = "default",
    precision: str = "f32",
    weights: str = "float",
    group: int = 32,
    tune: float = 0.0,
    inter_op: str = "auto",
    progress: bool | Progress = False,
) -> Model:
    """Compile a PyTorch module, or a torch.export.ExportedProgram, for arguments with the dtypes and shapes of
    the examples.

    Inputs are named like the arguments of `forward`, outputs by their position in the result: `output`, `output0`,
    `last_hidden_state`. `dynamic_shapes` is that of torch.export.export; dynamic dimensions compile to one dynamic-shape
    program where possible. Parameters and buffers become weights with their current values. See `compile_model` for the other
    arguments.

    Raises UnsupportedError for a module that mutates its buffers, and if PyTorch is not installed. It also raises
    UnsupportedError for operators without a rule in dlc: the message lists all of them with the lines that call them. Raises
    ModelError for a module that torch cannot export.
    """
    # torch is an optional dependency.
    from dlc.pytorch.exported_programs import exported_model

    folder = to_path(dump_ir) if dump_ir is not None else None
    options = Options.of(
        num_threads=num_threads,
        streams=streams,
        cpus=cpus,
        dump_ir=folder,
        pipeline=pipeline,
        check_each_pass=check_each_pass,
        cache=cache,
        numerics=numerics,
        precision=precision,
        weights=weights,
        group=group,
        tune=tune,
        inter_op=inter_op,
    )
    with _progress_callback(progress) as on_progress:
        return exported_model(module, example_inputs, example_keywords or {}, dynamic_shapes, target, options, on_progress)


def devices() -> tuple[Device, ...]:
    """Return the OpenCL devices of this machine; `str(device)` starts with the target name of the device."""
    return all_devices()


def to_device(array: ArrayLike, target: str) -> Array | DeviceArray:
    """Copy an array to a target, `cpu` or an OpenCL device; return the array itself if it is already there.

    Raises DeviceError for other targets and for a device that does not exist.
    """
    return to_target(array, target, Options().device)
