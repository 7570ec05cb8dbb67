"""Small checkpoints with weights drawn from seeds, as Hugging Face folders and GGUF files."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RECORDED = Path(__file__).parent / "families.json"
RECORDED_ENCODERS = Path(__file__).parent / "encoders.json"
TOKENS = [5, 17, 3, 88, 41, 9, 2, 60, 33, 7]
INT32, FLOAT32, STRING, ARRAY = 5, 6, 8, 9


def weight(name: str, shape: Sequence[int]) -> np.ndarray:
    """Return the weights of a tensor: vectors around 1 or 0, matrices with deviation 0.2."""
    draws = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32) * np.float32(0.2)
    return draws + np.float32(len(shape) == 1 and name.endswith("weight"))


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    header, offset = {}, 0
    for name, array in tensors.items():
        dtype = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int32": "I32"}[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values()))


def read_header(path: Path) -> dict[str, list[int]]:
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def write_model(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", {name: weight(name, shape) for name, shape in shapes.items()})


# A tokenizer of words, which truncates to two tokens.
WORDS = {
    "version": "1.0",
    "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "b": 2}, "unk_token": "[UNK]"},
}


def write_encoder(folder: Path, name: str = "bert", **changes: Any) -> Path:
    """Write the folder of a recorded encoder; `changes` replaces options."""
    recorded = json.loads(RECORDED_ENCODERS.read_text())[name]
    write_model(folder, {**recorded["config"], **changes}, recorded["shapes"])
    (folder / "tokenizer.json").write_text(json.dumps(WORDS))
    return folder


def _value(value: Any) -> tuple[int, bytes]:
    match value:
        case bool():
            return 7, struct.pack("<?", value)
        case int():
            return 4, struct.pack("<I", value)
        case float():
            return 6, struct.pack("<f", value)
        case str():
            return STRING, struct.pack("<Q", len(value.encode())) + value.encode()
        case np.ndarray():
            kind, dtype = (FLOAT32, "<f4") if value.dtype.kind == "f" else (INT32, "<i4")
            return ARRAY, struct.pack("<IQ", kind, len(value)) + value.astype(dtype).tobytes()
        case _:
            kinds, parts = zip(*map(_value, value), strict=True)
            return ARRAY, struct.pack("<IQ", kinds[0], len(value)) + b"".join(parts)


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: Mapping[str, tuple[Sequence[int], int, bytes]], alignment: int = 32
) -> bytes:
    """Return a GGUF file; a tensor is its shape, its type number and its bytes."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for name, value in metadata.items():
        kind, data = _value(value)
        header += _value(name)[1] + struct.pack("<I", kind) + data
    body = b""
    for name, (shape, kind, data) in tensors.items():
        header += _value(name)[1] + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        header += struct.pack("<IQ", kind, len(body))
        body += data + bytes(-len(data) % alignment)
    return header + bytes(-len(header) % alignment) + body


def quantize_q8_0(weights: np.ndarray) -> bytes:
    """Return the Q8_0 blocks of a matrix."""
    blocks = weights.reshape(-1, 32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    integers = np.round(blocks / np.maximum(scale.astype(np.float32), 1e-9)).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), integers.view(np.uint8)], 1).tobytes()


TEXTS = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{b:02X}>" for b in range(256)),
    "\u2581",
    *"abcdefghijklmnopqrstuvwxyz",
    "ab",
    "\u2581ab",
    "é",
]
LLAMA = {
    "general.architecture": "llama",
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.dimension_count": 16,
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": TEXTS,
    "tokenizer.ggml.scores": np.array([-float(len(t) == 1) for t in TEXTS]),
    "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * (len(TEXTS) - 259)),
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.chat_template": "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}",
}


def llama_tensors(*, is_quantized: bool = True, num_layers: int = 2) -> dict[str, tuple[Sequence[int], int, bytes]]:
    """Return the tensors of a Llama: vectors in f32, matrices in Q8_0 or f32."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(TEXTS), 64), "output_norm": (64,), "output": (len(TEXTS), 64)}
    for i in range(num_layers):
        layer = {"attn_norm": (64,), "ffn_norm": (64,), "attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64)}
        layer |= {"attn_output": (64, 64), "ffn_gate": (96, 64), "ffn_up": (96, 64), "ffn_down": (64, 96)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    tensors: dict[str, tuple[Sequence[int], int, bytes]] = {}
    for name, shape in shapes.items():
        array = weight(f"{name}.weight", shape)
        is_packed = is_quantized and len(shape) == 2
        tensors[f"{name}.weight"] = shape, 8 if is_packed else 0, quantize_q8_0(array) if is_packed else array.tobytes()
    return tensors


def write_llama(path: Path, *, is_quantized: bool = True, num_layers: int = 2, **changes: Any) -> Path:
    """Write a GGUF file of a small Llama; `changes` replaces metadata."""
    metadata = {**LLAMA, "llama.block_count": num_layers, **changes}
    path.write_bytes(gguf_bytes(metadata, llama_tensors(is_quantized=is_quantized, num_layers=num_layers)))
    return path


def write_mixture(path: Path, num_layers: int = 2) -> Path:
    """Write a GGUF file of a Mixtral whose experts all are the MLP of the Llama that `write_llama` writes."""
    tensors, num_experts = llama_tensors(num_layers=num_layers), 4
    for i in range(num_layers):
        for part in ("gate", "up", "down"):
            shape, kind, data = tensors.pop(f"blk.{i}.ffn_{part}.weight")
            tensors[f"blk.{i}.ffn_{part}_exps.weight"] = (num_experts, *shape), kind, data * num_experts
        router = weight(f"router {i}", (num_experts, 64))
        tensors[f"blk.{i}.ffn_gate_inp.weight"] = router.shape, 0, router.tobytes()
    experts = {"llama.expert_count": num_experts, "llama.expert_used_count": 2}
    path.write_bytes(gguf_bytes({**LLAMA, "llama.block_count": num_layers, **experts}, tensors))
    return path


def use_cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Use a cache, for tests that load a language model several times; models are not cached if every pass is verified."""
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_CACHE_DIR", str(folder))
    monkeypatch.delenv("DLC_VERIFY", raising=False)


# Modules that delay the first result of a cached model and that it does not need: the compiler, the console, OpenCL and MPI.
_UNNEEDED_MODULES = {"xdsl", "llvmlite", "onnx", "rich", "dlc.runtime.opencl.build", "dlc.runtime.collectives.start"}


def run_without_compiler(statements: str, *arguments: object) -> list[str]:
    """Run statements in another process, which must import no unneeded modules; return the lines that they print."""
    check = f"import sys; unneeded = {_UNNEEDED_MODULES} & sys.modules.keys(); assert not unneeded, unneeded"
    command = [sys.executable, "-c", f"{statements}\n{check}", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()
