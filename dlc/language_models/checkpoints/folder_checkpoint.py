"""Checkpoints in folders, as Hugging Face's Transformers saves them: config.json and safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError, UnsupportedError
from dlc.files.json_files import read_json
from dlc.files.safetensors import read_safetensors
from dlc.language_models.checkpoints.checkpoint import Checkpoint, ModelConfig, ModelWeights
from dlc.language_models.checkpoints.hugging_face_names import canonical_options, canonical_tensor_name, is_transposed
from dlc.language_models.checkpoints.packed_layouts import PackedLayout
from dlc.language_models.quantized_matrix import Weight

_INDEX_NAME, _SINGLE_NAME = "model.safetensors.index.json", "model.safetensors"
_MAX_SHARD_FILES = 10_000
# Buffers that Transformers saved with the weights: rotary frequencies and causal masks.
_BUFFER_SUFFIXES = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".position_ids")


def read_folder(folder: Path) -> Checkpoint:
    """Read a folder. Raises ModelError for missing or malformed files, UnsupportedError for an unknown layout."""
    config_path = folder / "config.json"
    if not config_path.exists():
        raise ModelError(
            f"{folder}: a folder without config.json; expected a GGUF file, or a checkpoint in Hugging Face's layout"
        )
    options = read_json(config_path)
    model_type = options.get("model_type")
    if not isinstance(model_type, str):
        raise ModelError(f"{config_path}: option model_type = {model_type!r}; expected the name of a family")
    quantization = options.pop("quantization_config", None)
    layout = None if quantization is None else PackedLayout.of(quantization, str(config_path))
    files = _weight_files(folder)
    tensors: dict[str, NDArray[Any]] = {}
    for file in files:
        for name, array in read_safetensors(file).items():
            if name in tensors:
                raise ModelError(f"{file}: the tensor {name!r} is in two files")
            tensors[name] = array
    named = {canonical_tensor_name(model_type, name): array for name, array in tensors.items()}
    named, packed = (named, {}) if layout is None else layout.matrices(named)
    if packed and any(is_transposed(model_type, name) for name in packed):
        raise UnsupportedError(
            f"{config_path}: quantization_config of model_type {model_type!r} is not supported; use a GGUF file of the model"
        )
    named = {name: array.T if is_transposed(model_type, name) else array for name, array in named.items()}
    shapes = {name: array.shape for name, array in named.items()} | {name: shape for name, (shape, _) in packed.items()}

    def read(name: str) -> Weight:
        return packed[name][1]() if name in packed else _as_float(name, named)

    weights = ModelWeights(str(folder), shapes, read, lambda n: n.endswith(_BUFFER_SUFFIXES))
    config = ModelConfig(canonical_options(model_type, options, str(config_path)), str(config_path))
    return Checkpoint(folder.name, model_type, config, weights, (config_path, *files), folder)


def _weight_files(folder: Path) -> list[Path]:
    if not (folder / _INDEX_NAME).exists():
        if not (folder / _SINGLE_NAME).exists():
            raise ModelError(f"{folder}: no {_SINGLE_NAME} and no {_INDEX_NAME}; convert other formats with save_pretrained")
        return [folder / _SINGLE_NAME]
    weight_map = read_json(folder / _INDEX_NAME).get("weight_map")
    names = set(cast("Mapping[str, Any]", weight_map).values()) if isinstance(weight_map, dict) else set[Any]()
    if not names or len(names) > _MAX_SHARD_FILES or not all(isinstance(n, str) and Path(n).name == n for n in names):
        raise ModelError(f"{folder / _INDEX_NAME}: weight_map does not map tensors to files of the folder")
    return [folder / name for name in sorted(names)]


def _as_float(name: str, tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    array = tensors[name]
    if array.dtype.kind not in "fV" and array.dtype.name != "bfloat16":
        raise UnsupportedError(f"tensor {name!r} has dtype {array.dtype}; expected floats")
    return array.astype(np.float32) if array.dtype == np.float64 else array
