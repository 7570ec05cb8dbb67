"""Write a Llama with random quantized weights to a GGUF file, for benchmarks.

    python benchmarks/random_llama.py FORMAT FILE [--layers 5] [--width 2048] [--hidden 5632] [--vocabulary 2048]

FORMAT is a block format such as Q4_K. Matrices consist of random blocks, whose scales give weights of deviation 1 / √width.
The vocabulary has the words `w0 w1 …`, so that prompts of the other benchmarks are tokens.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from dlc.language_models.checkpoints.block_formats import GGUF_TYPES
from tests.language_models.models import gguf_bytes

_F32 = 0
_HEAD_SIZE = 64
# The first byte of the f16 scale of blocks, where it is not 0.
_SCALES = {"Q3_K": 108, "Q6_K": 208, "Q2_K": 80}
# The first byte of the f16 minimum, and the minimum in scales for which the mean of the weights is 0.
_MINIMA = {"Q4_1": (2, -7.5), "Q5_1": (2, -15.5), "Q2_K": (82, 1.5), "Q4_K": (2, 7.5), "Q5_K": (2, 15.5)}


def random_blocks(number: int, rows: int, width: int, rng: np.random.Generator) -> bytes:
    """Return random blocks of a matrix [rows, width] whose weights have deviation 1 / √width."""
    kind = GGUF_TYPES[number]
    assert kind.decode is not None
    blocks = rng.integers(0, 256, (rows, width // kind.elements, kind.bytes), np.uint8)
    if kind.name == "Q2_K":
        blocks[..., :16] = blocks[..., :16] % 16 * 17
    elif kind.name in ("Q4_K", "Q5_K"):
        # The integers of scales and minima are equal.
        blocks[..., 8:12] = blocks[..., 4:8]
        blocks[..., 12:16] = blocks[..., 12:16] % 16 * 17

    def scale_by(scale: float) -> None:
        start = _SCALES.get(kind.name, 0)
        blocks[..., start : start + 2] = np.array([scale], "<f2").view(np.uint8)
        if kind.name in _MINIMA:
            start, center = _MINIMA[kind.name]
            blocks[..., start : start + 2] = np.array([scale * center], "<f2").view(np.uint8)

    unit = 1 / 64
    scale_by(unit)
    scale_by(unit / kind.decode(blocks[:16]).dequantize().std() / width**0.5)
    return blocks.tobytes()


def write_llama(path: Path, format_name: str, layers: int, width: int, hidden: int, vocabulary: int) -> None:
    numbers = {kind.name: number for number, kind in GGUF_TYPES.items() if kind.decode is not None}
    if format_name not in numbers:
        raise SystemExit(f"unknown format {format_name}; expected one of {', '.join(numbers)}")
    rng, key_width = np.random.default_rng(0), width // 4
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (vocabulary, width),
        "output_norm": (width,),
        "output": (vocabulary, width),
    }
    for i in range(layers):
        layer = {"attn_norm": (width,), "ffn_norm": (width,), "attn_q": (width, width), "attn_k": (key_width, width)}
        layer |= {"attn_v": (key_width, width), "attn_output": (width, width), "ffn_gate": (hidden, width)}
        layer |= {"ffn_up": (hidden, width), "ffn_down": (width, hidden)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    tensors = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            tensors[f"{name}.weight"] = shape, _F32, np.ones(shape, np.float32).tobytes()
        else:
            tensors[f"{name}.weight"] = shape, numbers[format_name], random_blocks(numbers[format_name], *shape, rng)
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581"]
    texts += [f"\u2581w{i}" for i in range(vocabulary - len(texts))]
    heads = width // _HEAD_SIZE
    metadata = {
        "general.architecture": "llama",
        "llama.context_length": 4096,
        "llama.embedding_length": width,
        "llama.block_count": layers,
        "llama.feed_forward_length": hidden,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": heads // 4,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": _HEAD_SIZE,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.scores": np.zeros(len(texts)),
        "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * (len(texts) - 259)),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    path.write_bytes(gguf_bytes(metadata, tensors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format")
    parser.add_argument("path", type=Path)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=5632)
    parser.add_argument("--vocabulary", type=int, default=2048)
    arguments = parser.parse_args()
    sizes = arguments.layers, arguments.width, arguments.hidden, arguments.vocabulary
    write_llama(arguments.path, arguments.format, *sizes)


if __name__ == "__main__":
    main()
