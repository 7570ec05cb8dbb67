"""Read checkpoints of any kind."""

from __future__ import annotations

from pathlib import Path

from dlc.errors import ModelError
from dlc.language_models.checkpoints.checkpoint import Checkpoint
from dlc.language_models.checkpoints.folder_checkpoint import read_folder
from dlc.language_models.checkpoints.gguf_checkpoint import read_gguf


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a GGUF file, or a folder that Hugging Face's Transformers wrote. Raises ModelError and UnsupportedError."""
    if not path.exists():
        raise ModelError(f"{path}: no such file or folder")
    return read_folder(path) if path.is_dir() else read_gguf(path)
