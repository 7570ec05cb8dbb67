"""A compiled model as a shared library, an object or an archive of one, with a header beside it that says how it is called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import ALIGNMENT
from dlc.deploy.archive import archive
from dlc.deploy.elf import Function, relocatable_object, shared_library
from dlc.dims import Dim, Range
from dlc.errors import UnsupportedError
from dlc.files.whole_files import write_whole_text, written_whole
from dlc.forms import OBJECTS
from dlc.runtime.artifact import Artifact
from dlc.runtime.checksum import checksum_of
from dlc.runtime.container import Placed, bytes_of
from dlc.runtime.cpu.sizing import symbols_of
from dlc.runtime.formats.by_sizes import SavedBySizes
from dlc.runtime.host_program import Compute, HostProgram, walk
from dlc.runtime.image import memory_of
from dlc.runtime.model import Model
from dlc.runtime.open_program import OpenProgram
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.variants import Variants
from dlc.target import architecture_of

SUFFIXES = (".so", ".o", ".a")
_CALL = re.compile(r"#ifndef DLC_CALL\n.*?\n#endif\n", re.DOTALL)


def write_library(model: Model, path: Path) -> Path:
    """Writes a model as what the path's suffix says (.so, .o or .a), and beside it a header (.h), whose path is returned.

    The one symbol is `dlc_model_NAME`, of the file's name. Of a model that is compiled anew for some sizes it holds the program
    for the others, which the header says. Raises UnsupportedError for a model that is not one program for the CPU, and DlcError
    when a file cannot be written.
    """
    model = _alone(model)
    artifact = model.artifact
    if not isinstance(artifact, Artifact):
        raise UnsupportedError(f"{model.name}: a library holds one program for the CPU; {_not_one(model)}")
    computed = [i for i, _ in walk(artifact.host.instructions) if isinstance(i, Compute)]
    if computed:
        places = ", ".join(f"{i.op} at {i.where}" for i in computed)
        raise UnsupportedError(f"{model.name}: only Python computes {places}; save it as .dlc for Python")
    name = re.sub(r"\W", "_", path.stem, flags=re.ASCII)
    function = _function(artifact, model.defaults, f"dlc_model_{name}")
    data = shared_library(function, path.name) if path.suffix == ".so" else relocatable_object(function)
    if path.suffix == ".a":
        data = archive(f"{name}.o", data, function.symbol)
    header = path.with_suffix(".h")
    with written_whole(path) as file:
        file.write(data)
    write_whole_text(header, header_text(model, artifact, function))
    return header


def _alone(model: Model) -> Model:
    """The program that serves calls of a model by itself, of those sizes that one compilation is for."""
    served = model.artifact.models.served if isinstance(model.artifact, SavedBySizes) else None
    if served is None or not isinstance(served.model.artifact, Artifact):
        return model
    program = served.model.artifact.model()
    program.defaults = model.defaults
    return program


def _not_one(model: Model) -> str:
    """Why a model is not one program for the CPU, and what to do."""
    if model.values:
        return f"this model is compiled for the values of {', '.join(model.values)}: give them (--value, input_values)"
    if model.artifact is None or isinstance(model.artifact, DeviceArtifact):
        return "this model was compiled for another target, or runs in Python: compile it for a target such as cpu"
    if any(info.dtype == OBJECTS for info in (*model.inputs, *model.outputs)):
        return "this model takes or returns text, lists or None, of which only Python makes tensors: save it as .dlc for Python"
    if isinstance(model.artifact, Variants):
        return f"this model is compiled for {model.artifact.decided_by}: give them (--shape, input_shapes)"
    return "this model is compiled for each set of sizes: give them (--shape, input_shapes)"


def _function(artifact: Artifact, defaults: Mapping[str, NDArray[Any]], symbol: str) -> Function:
    """The program as a function, with its weights behind it."""
    weights = [artifact.weights[info.name] for info in artifact.host.weights]
    data, places = _laid_out(artifact, [*weights, *defaults.values()])

    def image(distance: int) -> bytes:
        placed = [p._replace(distance=p.distance + distance) for p in places]
        return artifact.image(placed[: len(weights)], dict(zip(defaults, placed[len(weights) :], strict=True)))

    # It is as long whatever the distance is.
    architecture = architecture_of(artifact.target)
    distance = Function(symbol, image(0), data, architecture).data_distance
    return Function(symbol, image(distance), data, architecture)


def _laid_out(artifact: Artifact, arrays: Iterable[NDArray[Any]]) -> tuple[bytes, list[Placed]]:
    """Arrays one after the other, and where each is."""
    data, places, checksum = bytearray(), list[Placed](), checksum_of(artifact.target, artifact.runtime)
    for array in arrays:
        own = bytes_of(array)
        places.append(Placed(len(data), own.nbytes, checksum(own, 0)))
        data += own
        data += bytes(-len(data) % ALIGNMENT)
    return bytes(data), places


def header_text(model: Model, artifact: Artifact, function: Function) -> str:
    """The header of a library."""
    call = _CALL.search(Path(__file__).with_name("dlc.h").read_text())
    assert call is not None, "dlc.h declares the call"
    symbols, symbol = symbols_of(artifact.host), function.symbol
    lines = [
        f"{_plain(model.name)}, compiled by dlc for {artifact.target.name}, which is a processor of",
        f"{artifact.target.architecture} with {' '.join(artifact.target.features)}.",
        "",
        *(f"size {k}    {_plain(name)}{_range_of(artifact, name)}" for k, name in enumerate(symbols)),
        *(f"input {k}   {_plain(str(i))}{', or NULL' if i.name in model.defaults else ''}" for k, i in enumerate(model.inputs)),
        *(f"output {k}  {_plain(str(info))}" for k, info in enumerate(model.outputs)),
        *(f"output {k} is written over input {d}, which is then written" for k, d in _donors(artifact).items()),
        "",
        "Arrays are row after row, aligned as their elements; memory begins at a multiple of 64:",
        "",
        "    dlc_call call = {0};",
        f"    call.inputs = inputs, call.outputs = outputs{', call.sizes = sizes' if symbols else ''};",
        f"    {symbol}(&call);                      // no memory yet: answers call.needed",
        "    call.memory = aligned_alloc(64, (call.needed + 63) / 64 * 64), call.bytes = call.needed;",
        f"    if ({symbol}(&call)) ...              // 0: done; codes are those of dlc.h, below 0 the model's own",
        *_told_later(artifact),
        "",
        "Calls at once have memory of their own. A call runs on its own thread, or on threads of yours (`parallel`); dlc.h",
        f"(`dlc header`) runs it on threads of its own, and checks the processor: dlc_open_linked({symbol}, ...).",
    ]
    comment = "\n".join(f" * {line}".rstrip() for line in lines)
    known = (
        "" if symbols or _decided(artifact) else f"#define {symbol.upper()}_BYTES {memory_of(function.code)} /* of memory */\n"
    )
    return f"""/*
{comment}
 */
#ifndef {symbol.upper()}_H
#define {symbol.upper()}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{call.group()}
{known}int64_t {symbol}(dlc_call *call);

#ifdef __cplusplus
}}
#endif
#endif
"""


def _range_of(artifact: Artifact, symbol: str) -> str:
    """What a size may be, if it is said."""
    range_ = artifact.host.ranges.get(symbol) if isinstance(artifact.host, OpenProgram) else None
    return "" if range_ is None or range_ == Range() else f" in {range_}"


def _decided(artifact: Artifact) -> Sequence[str]:
    """The sizes that data decides."""
    return artifact.host.decided if isinstance(artifact.host, OpenProgram) else ()


def _told_later(artifact: Artifact) -> list[str]:
    """What is to be known of a program in which data decides sizes."""
    decided = _decided(artifact)
    if not decided:
        return []
    own = [k for k, o in enumerate(artifact.host.outputs) for size in o.shape if Dim.lift(size).symbols() & {*decided}]
    named = ", ".join(f"outputs[{k}]" for k in dict.fromkeys(own)) or "none"
    return [
        "",
        f"Data decides {_plain(', '.join(decided))}: a call may take more memory than was answered before. It ends with 2",
        "then, and is to be made again with call.needed bytes. Outputs of such sizes lie in the memory: the call sets the",
        f"addresses of {named}, and call.shapes says how large they are.",
    ]


def _donors(artifact: Artifact) -> Mapping[int, int]:
    return artifact.host.donors if isinstance(artifact.host, HostProgram) else {}


def _plain(text: str) -> str:
    """Text in a comment."""
    return re.sub(r"[^\x20-\x7e]", "?", text).replace("*/", "* /")
