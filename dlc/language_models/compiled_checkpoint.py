"""Load compiled checkpoints from the cache, or compile and store them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlc.caching.digests import file_digest
from dlc.caching.keys import CacheKey, compilation_fields
from dlc.caching.model_cache import load_or_make, reason_not_cached
from dlc.errors import ModelError
from dlc.language_models.checkpoints.checkpoint import Checkpoint
from dlc.language_models.checkpoints.reading import read_checkpoint
from dlc.machine.garbage_collection import infrequent_collection
from dlc.options import Options
from dlc.runtime.load import load
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import Saveable
from dlc.target import Target


@infrequent_collection()
def load_or_compile(
    checkpoint: Checkpoint,
    path: Path,
    sizes: str,
    target: Target,
    options: Options,
    compile: Callable[[Checkpoint], Model],
    progress: Callable[[str], None],
) -> Model:
    """Load the compiled model of a checkpoint from the cache, or compile and store it.

    `sizes` identifies the variant that `compile` returns, by its shapes and settings. Raises ModelError if the files
    change while they are compiled.
    """
    if reason_not_cached(target, options) is not None:
        return compile(checkpoint)
    progress("looking in the cache")
    files = _digests(checkpoint)
    key = CacheKey({"file": files, "shapes": sizes, **compilation_fields(target, options)})
    metadata: dict[str, Any] = {
        "model": checkpoint.name,
        "inputs": [],
        "file": str(path.resolve()),
        "fields": dict(key.fields),
    }

    def make() -> Model:
        # Read again, since the files may have been replaced before they were hashed.
        current = read_checkpoint(path)
        model = compile(current)
        if _digests(current) != files:
            raise ModelError(f"{path}: the file changed during compilation; compile it again")
        return model

    def read(entry: Path) -> Model:
        return load(entry, num_threads=options.num_threads, cpus=options.cpus)

    return load_or_make(key, metadata, read, make, _artifact)[0]


def _digests(checkpoint: Checkpoint) -> str:
    return " ".join(map(file_digest, checkpoint.files))


def _artifact(model: Model) -> Saveable:
    assert model.artifact is not None
    return model.artifact
