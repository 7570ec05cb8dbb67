"""Mutated checkpoints of language models: GGUF files, and folders with config.json, safetensors and a tokenizer."""

from __future__ import annotations

import json
import random
import struct
from functools import cache
from pathlib import Path
from typing import Any

from dlc.language_models.chat_template import render_chat
from dlc.language_models.checkpoints.reading import read_checkpoint
from dlc.language_models.families.registry import build_decoder
from dlc.language_models.tokenizers.reading import tokenizer_of
from tests.fuzz import mutations
from tests.language_models.models import LLAMA, RECORDED, WORDS, gguf_bytes, llama_tensors, write_model

_TEMPLATE = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ m.content | trim }}{% endif %}{% endfor %}"
_WEIGHTS = "model.safetensors"


@cache
def gguf_file() -> tuple[bytes, int]:
    """Return a GGUF file, and the size of its header."""
    tensors = llama_tensors()
    content = gguf_bytes(LLAMA, tensors)
    return content, len(content) - sum(len(data) + -len(data) % 32 for _, _, data in tensors.values())


@cache
def recorded_models() -> dict[str, Any]:
    return json.loads(RECORDED.read_text())


def mutated_gguf(folder: Path, rng: random.Random) -> Path:
    content, header_size = gguf_file()
    path = folder / "model.gguf"
    path.write_bytes(mutations.mutate_bytes(content[:header_size], rng) + content[header_size:])
    return path


def mutated_folder(folder: Path, rng: random.Random) -> Path:
    """Write a folder of a recorded family, with one file mutated."""
    models = recorded_models()
    model = models[rng.choice(sorted(models))]
    write_model(folder, model["config"], model["shapes"])
    (folder / "tokenizer.json").write_text(json.dumps(WORDS))
    (folder / "chat_template.jinja").write_text(_TEMPLATE)
    path = folder / rng.choice(["config.json", "config.json", _WEIGHTS, "tokenizer.json", "chat_template.jinja"])
    content = path.read_bytes()
    if rng.random() < 0.2:
        path.write_bytes(mutations.mutate_bytes(content, rng))
    elif path.suffix == ".jinja":
        path.write_text(mutations.mutate_text(_TEMPLATE, rng))
    elif path.name == _WEIGHTS:
        size = int.from_bytes(content[:8], "little")
        header = _mutated_json(content[8 : 8 + size], rng)
        path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + size :])
    else:
        path.write_bytes(_mutated_json(content, rng))
    return folder


def read(path: Path) -> str:
    """Read a checkpoint, and use its tokenizer and its chat template."""
    checkpoint = read_checkpoint(path)
    build_decoder(checkpoint)
    tokenizer = tokenizer_of(checkpoint)
    tokenizer.encode("ab c")
    if tokenizer.chat_template:
        render_chat(tokenizer.chat_template, [{"role": "user", "content": "ab"}], tokenizer.special_texts)
    return "read"


def _mutated_json(content: bytes, rng: random.Random) -> bytes:
    value = json.loads(content)
    for _ in range(rng.choice([1, 1, 2])):
        mutations.mutate_json(value, rng)
    return json.dumps(value).encode()
