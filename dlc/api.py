"""What Python users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike, NDArray

from dlc.arrays import Array, given_array, require_unmasked
from dlc.derived import TrainStep, derived_of
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.files.model_source import ModelSource, path_or_bytes
from dlc.files.whole_files import path_of
from dlc.given_shapes import given_shapes
from dlc.instrument.report import Progress
from dlc.model_files import compile_file
from dlc.options import Options
from dlc.runtime.models.model import Model
from dlc.runtime.opencl.array import DeviceArray, put
from dlc.runtime.opencl.devices import Device, all_devices

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
    dump_ir: str | PathLike[str] | None = None,
    pipeline: str | None = None,
    check_each_pass: bool = False,
    cache: bool | None = None,
    numerics: str = "default",
    precision: str = "f32",
    weights: str = "float",
    group: int = 32,
    tune: float = 0.0,
    vjp: str | Sequence[str] | None = None,
    jvp: str | Sequence[str] | None = None,
    hvp: str | None = None,
    wrt: str | Sequence[str] | None = None,
    train_step: TrainStep | None = None,
    parameters: str | Sequence[str] | None = None,
    progress: bool | Progress = False,
) -> Model:
    """The ONNX model `model` compiled for `target`: the path of a file, its bytes, a file open for reading, or a ModelProto; a
    TFLite model, `m.tflite` (docs/tflite.md), likewise; or the path of what torch.export.save wrote, `m.pt2`
    (docs/pytorch.md), or of a module of StableHLO (docs/jax.md).

    Targets: `cpu` (this machine), `cpu:generic`, `cpu:avx2`, `cpu:avx512`, the last two with `_vnni` behind them where there
    is that, the last with `_bf16`; `opencl` (the first OpenCL device that works, or the one that DLC_DEVICE names),
    `opencl:0:1` (platform 0, device 1); `reference`; one of your own, a value or where it is found, `FILE.py:NAME`
    (docs/extending.md).

    `input_shapes` gives sizes to inputs whose sizes the file leaves open; a size may stay open, with a name and a range, or as
    the file has it: `{"x": ("N:1..32", None, 224, 224)}`; `{"batch": 8}` gives the size that the file calls so. A model with
    open sizes is compiled once for all of them that it holds for, or where that cannot be when it is called, once per set of
    input shapes. `input_values` makes constants of inputs, which are none of the model's then. Without it, inputs that shapes
    hang on (axes, repeats, a condition: `model.values` are their names) are taken from the call, and the model is compiled
    once for each of their values. `num_threads=None` uses the processors that this process may use.
    `dump_ir` is a folder for the IR after every pass; `pipeline` (`"a,b{k=1}"`) replaces the passes. With
    `check_each_pass` the first call checks, on its inputs, what every pass makes of the model: CompileError names the first one
    after which results are wrong, the kernel or op, and the nodes that it comes from. What is compiled for a CPU is kept and
    found again by the contents of the file, unless `cache` is False. `numerics="strict"` keeps to the operations as the model
    has them, `precision` of `bf16` or `f16` rounds what contractions of f32 with weights multiply (docs/numerics.md). `weights`
    of `int8` or `int4` makes integers of the large weights of products, with a scale for each `group` of them: less memory, and
    results that differ (docs/few_bits.md). `tune` is for how many seconds tile plans for a CPU are measured on this machine;
    what was found is kept in the cache.

    `vjp`, `jvp` and `hvp` are outputs whose derivative is compiled instead, with respect to the inputs and weights `wrt`, and
    `train_step` a step of an optimiser (docs/calculus.md): the weights meant are inputs then, which a call may leave out. So
    are the `parameters` of a model, names of initialisers or patterns such as `layer4.*`, those among them that the file lists
    as inputs too: without it all initialisers are constants.

    `progress=True` shows on a terminal or in a notebook which pass, and which kernel, it is at; a function is told instead, by
    one argument: its `phase`, `what` is done in it, how many are `done` of a `total`, and all of that as text.

    Raises ModelError for a malformed file, UnsupportedError with everything in the model that dlc does not support,
    ShapeError for shapes that contradict the model, DeviceError for a target that this machine is not.
    """
    folder = path_of(dump_ir) if dump_ir is not None else None
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
    values = _given_values(input_values)
    derived = derived_of(vjp, jvp, hvp, train_step, wrt, parameters)
    with _told(progress) as tell:
        shapes = given_shapes(input_shapes)
        return compile_file(path_or_bytes(model), target, shapes, options, values=values, derived=derived, progress=tell)


def _given_values(values: Mapping[str, ArrayLike] | None) -> dict[str, NDArray[Any]]:
    """Values of inputs by name. Raises ShapeError and DTypeError for what is none."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in (values or {}).items():
        try:
            arrays[name] = given_array(value)
        except (ShapeError, DTypeError) as error:
            raise type(error)(f"input_values: {name!r}: {error}") from error
        require_unmasked(value, f"input_values: {name!r}")
    return arrays


def _told(progress: bool | Progress) -> AbstractContextManager[Progress | None]:
    """Who is told what is about to be done."""
    if not isinstance(progress, bool) and not callable(progress):
        raise DlcError(f"progress: expected True, or a function of one argument, got {progress!r}")
    if progress is not True:
        return nullcontext(progress or None)
    # What draws on terminals takes a while to import.
    from dlc.progress import shown_on

    return shown_on()


def from_torch(
    module: Any,
    example_inputs: Sequence[Any] = (),
    example_keywords: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
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
    progress: bool | Progress = False,
) -> Model:
    """A module of PyTorch, called with arguments like the examples, as a compiled model; or a torch.export.ExportedProgram.

    Inputs are called as the arguments of its `forward`, outputs by their places in what it returns: `output`, `output0`,
    `last_hidden_state`. `dynamic_shapes` are torch.export.export's: sizes that it leaves open are compiled once for all, as far
    as that can be. Parameters and buffers become weights of the model, as they are now. The other arguments are those of
    `compile_model`.

    Raises UnsupportedError with every operator that dlc has no rule for and the lines that call it, for a module that changes
    its buffers, and where PyTorch is not installed; ModelError for a module that torch cannot export.
    """
    # torch is no dependency.
    from dlc.pytorch.exported import exported_model

    folder = path_of(dump_ir) if dump_ir is not None else None
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
    with _told(progress) as tell:
        return exported_model(module, example_inputs, example_keywords or {}, dynamic_shapes, target, options, tell)


def devices() -> tuple[Device, ...]:
    """The OpenCL devices of this machine; `str(device)` starts with the target that means it."""
    return all_devices()


def to_device(array: ArrayLike, target: str) -> Array | DeviceArray:
    """An array moved to a target, `cpu` or an OpenCL device; itself if it is there already.

    Raises DeviceError for a target without memory of its own, and for a device that is not there.
    """
    return put(array, target, Options().device)
