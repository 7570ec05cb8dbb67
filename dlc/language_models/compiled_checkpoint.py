"""The cache of compiled checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlc.caching.cache import Cache
from dlc.caching.keys import CacheKey, compilation_fields, file_digest
from dlc.caching.model_cache import MODEL_KIND, reason_not_cached
from dlc.language_models.checkpoints.checkpoint import Checkpoint
from dlc.options import Options
from dlc.runtime.load import load
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import save
from dlc.target import Target


def load_or_compile(
    checkpoint: Checkpoint,
    path: Path,
    sizes: str,
    target: Target,
    options: Options,
    compile: Callable[[], Model],
    progress: Callable[[str], None],
) -> Model:
    """Load the compiled model of a checkpoint from the cache, or compile and store it.

    `sizes` describes what `compile` makes of the checkpoint: shapes and settings.
    """
    if reason_not_cached(target, options) is not None:
        return compile()
    progress("looking in the cache")
    digests = {"file": " ".join(map(file_digest, checkpoint.files)), "shapes": sizes}
    key = CacheKey({**digests, **compilation_fields(target, options)})
    about: dict[str, Any] = {"model": checkpoint.name, "inputs": [], "file": str(path.resolve()), "fields": dict(key.fields)}
    model, _ = Cache.standard().fetch(
        MODEL_KIND,
        key.digest,
        lambda entry: load(entry, num_threads=options.num_threads, cpus=options.cpus),
        compile,
        _write,
        about,
    )
    return model


def _write(model: Model, path: Path) -> None:
    assert model.artifact is not None
    save(path, model.artifact)
