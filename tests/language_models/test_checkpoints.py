"""Checkpoint files that are truncated, hostile or mismatched are errors that name the problem, within a second."""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pytest

from dlc.errors import DlcError, ModelError, UnsupportedError
from dlc.files.safetensors import read_safetensors
from dlc.frontend.snapshots import Snapshots
from dlc.language_models.chat_template import render_chat
from dlc.language_models.checkpoints.gguf_file import GgufFile
from dlc.language_models.checkpoints.reading import read_checkpoint
from dlc.language_models.families.registry import build_decoder
from dlc.language_models.pooling import Pooling
from dlc.language_models.quantized_matrix import QuantizedMatrix
from dlc.language_models.tokenizers.library_tokenizer import LibraryTokenizer
from dlc.language_models.tokenizers.reading import tokenizer_of
from tests.language_models.models import (
    LLAMA,
    TEXTS,
    WORDS,
    gguf_bytes,
    llama_tensors,
    write_encoder,
    write_llama,
    write_safetensors,
)

MATRIX = ((4, 64), 8, bytes(4 * 68))


def require_error(path: Path, error: type[Exception], message: str) -> None:
    start = perf_counter()
    with pytest.raises(error, match=message):
        build_decoder(read_checkpoint(path))
    assert perf_counter() - start < 1


def test_tensors_and_metadata(tmp_path: Path) -> None:
    file = GgufFile.read(write_llama(tmp_path / "m.gguf", **{"general.list": [1, 2, 3], "general.names": ["a", "ß"]}))
    assert file.metadata["llama.block_count"] == 2 and file.metadata["general.names"] == ["a", "ß"]
    assert file.metadata["general.list"].tolist() == [1, 2, 3]
    assert file.tensors["blk.0.attn_k.weight"].shape == (32, 64)
    decoder = build_decoder(read_checkpoint(tmp_path / "m.gguf"))
    assert (decoder.kv_heads, decoder.head_size, len(decoder.layers)) == (2, 16, 2)


@pytest.mark.parametrize("is_quantized", [True, False])
def test_programs_share_weights_without_copies(is_quantized: bool, tmp_path: Path) -> None:
    """A trace copies an array that may be modified later."""
    weights = read_checkpoint(write_llama(tmp_path / "m.gguf", is_quantized=is_quantized)).weights
    weight = weights.weight("model.layers.0.self_attn.k_proj.weight", 32, 64)
    for array in (weight.integers, weight.scale) if isinstance(weight, QuantizedMatrix) else (weight,):
        assert Snapshots().take(array) is array


@pytest.mark.parametrize("keep", [0, 3, 4, 10, 24, 60, 1000, 9000, -1, -2000], ids=lambda n: f"{n}_bytes")
def test_truncated_gguf(keep: int, tmp_path: Path) -> None:
    content = gguf_bytes(LLAMA, llama_tensors())
    (tmp_path / "m.gguf").write_bytes(content[:keep])
    require_error(tmp_path / "m.gguf", ModelError, "truncated|not a GGUF|empty")


@pytest.mark.parametrize(
    "tensor, message",
    [
        (((1 << 62,), 0, b""), "truncated"),
        (((1 << 40, 1 << 40, 1 << 40), 0, b""), "truncated"),
        (((1 << 33, 33), 8, b""), "multiple of the 32 elements"),
        (((4, 64), 77, b""), "type 77"),
        (((4, 64), 4, b""), "type 4"),
        (((1 << 62, 0), 0, b""), "no elements"),
    ],
    ids=str,
)
def test_hostile_tensors(tensor: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(LLAMA, {**llama_tensors(), "extra": tensor}))
    require_error(tmp_path / "m.gguf", DlcError, message)


def test_changed_headers(tmp_path: Path) -> None:
    """Extreme integers at random places of a header: a clear error, or a model with other options."""
    content, rng = gguf_bytes(LLAMA, llama_tensors()), np.random.default_rng(0)
    end = content.index(b"blk.1.ffn_down.weight") + 80
    for _ in range(150):
        changed = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            position, size, bits = rng.integers(end), rng.choice([1, 4, 8]), rng.choice([0, 1, 8, 31, 32, 40, 62, 64])
            changed[position : position + size] = struct.pack("<Q", (1 << int(bits)) - 1)[:size]
        (tmp_path / "m.gguf").write_bytes(changed)
        start = process_time()
        with contextlib.suppress(DlcError):
            checkpoint = read_checkpoint(tmp_path / "m.gguf")
            build_decoder(checkpoint)
            tokenizer_of(checkpoint).encode("ab c")
        assert process_time() - start < 1


@pytest.mark.parametrize("position, value", [(8, 1 << 62), (16, 1 << 62), (24, 1 << 62)], ids=["tensors", "fields", "string"])
def test_hostile_counts(position: int, value: int, tmp_path: Path) -> None:
    content = bytearray(gguf_bytes(LLAMA, llama_tensors()))
    content[position : position + 8] = struct.pack("<Q", value)
    (tmp_path / "m.gguf").write_bytes(content)
    require_error(tmp_path / "m.gguf", ModelError, "truncated or damaged")


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"general.architecture": "rwkv"}, UnsupportedError, "architecture 'rwkv'"),
        ({"llama.new_option": 5}, UnsupportedError, "llama.new_option = 5"),
        ({"llama.block_count": 3}, ModelError, "model.layers.2"),
        ({"llama.embedding_length": 32, "llama.rope.dimension_count": 8}, ModelError, "expected"),
        ({"llama.attention.head_count": 0}, ModelError, "num_attention_heads = 0"),
        ({"llama.rope.dimension_count": 8}, UnsupportedError, "rope.dimension_count = 8"),
        ({"general.alignment": 3}, ModelError, "alignment 3"),
    ],
    ids=str,
)
def test_mismatched_options(change: dict[str, Any], error: type[Exception], message: str, tmp_path: Path) -> None:
    require_error(write_llama(tmp_path / "m.gguf", **change), error, message)


def test_safetensors(tmp_path: Path) -> None:
    path, array = tmp_path / "m.safetensors", np.arange(6, dtype=np.float32).reshape(2, 3)
    write_safetensors(path, {"a": array, "b": array.astype(np.float16)})
    tensors = read_safetensors(path)
    np.testing.assert_array_equal(tensors["a"], array)
    assert tensors["b"].dtype == np.float16


@pytest.mark.parametrize(
    "entry, message",
    [
        ({"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 1 << 62]}, "data_offsets"),
        ({"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 24]}, "shape"),
        ({"dtype": "F32", "shape": [2, -3], "data_offsets": [0, 24]}, "shape"),
        ({"dtype": "F4", "shape": [2, 3], "data_offsets": [0, 24]}, "dtype F4"),
        ({"dtype": ["F32"], "shape": [2, 3], "data_offsets": [0, 24]}, "dtype .'F32'."),
        ({"dtype": "F32", "shape": [2, 3]}, "data_offsets"),
        ([1], "no dtype"),
    ],
    ids=str,
)
def test_hostile_safetensors(entry: Any, message: str, tmp_path: Path) -> None:
    text = json.dumps({"a": entry}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(24))
    with pytest.raises(DlcError, match=message):
        read_safetensors(tmp_path / "m.safetensors")


def test_a_folder_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"a folder without config\.json; expected a GGUF file"):
        read_checkpoint(tmp_path)


def test_files_that_are_not_regular(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ModelError, match="not a regular file"):
            read_safetensors(path)


@pytest.mark.parametrize("kind", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
        "modules.json",
        "sentence_bert_config.json",
    ],
)
def test_files_of_folders_are_regular(name: str, kind: Callable[[Path], None], tmp_path: Path) -> None:
    """Reading a pipe would wait for a writer."""
    pytest.importorskip("tokenizers")
    (tmp_path / "modules.json").write_text("[]")
    write_encoder(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    kind(tmp_path / name)
    with pytest.raises(ModelError, match=f"{name}: cannot be read: not a regular file"):
        read_checkpoint(tmp_path)
        LibraryTokenizer.of_folder(tmp_path)
        Pooling.of_folder(tmp_path)


def test_a_template_that_is_not_text(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    write_encoder(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"{{ \xff }}")
    with pytest.raises(ModelError, match=r"chat_template\.jinja: not UTF-8 text: .* at byte 3"):
        LibraryTokenizer.of_folder(tmp_path)


@pytest.mark.parametrize("content", [b"", b"abc", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"[]"], ids=str)
def test_damaged_safetensors(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.safetensors"):
        read_safetensors(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{% for i in range(90000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ 10 ** 10 ** 10 }}",
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception('no system message') }}",
        "{% if %}",
        "{{ 'a'|center(3000000000) }}",
        "{{ 'a'.ljust(3000000000) }}",
        "{{ '%2000000000d' % 1 }}",
        "{{ '%*d' % (2000000000, 1) }}",
        "{{ '{:>2000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 2000000000) }}",
        "{{ '%2000000000d'|format(1) }}",
        "{{ 'a'|indent(2000000000, true) }}",
        "{{ 'ab'.replace('', range(90000)|join).replace('', range(90000)|join) }}",
        "{{ ''|batch(2000000000, 'x')|list }}",
        "{{ messages|tojson(indent=2000000000) }}",
        "{% set n = namespace(x=3) %}{% for i in range(40) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ n.x }}",
        "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{% set n = namespace(x='aa') %}"
        "{% for i in range(60) %}{% set n.x = twice(n.x) %}{% endfor %}{{ n.x }}",
        "{% set x %}{% for i in range(90000) %}{{ range(9000)|join }}{% endfor %}{% endset %}",
        "{{ range(90000)|map('string')|map('center', 9000000)|join }}",
    ],
)
def test_hostile_templates(template: str) -> None:
    start = perf_counter()
    with pytest.raises(ModelError, match="chat template"):
        render_chat(template, [{"role": "user", "content": "hi"}], {})
    assert perf_counter() - start < 2


def test_templates_may_format_and_replace() -> None:
    template = "{{ '%s: %5.1f'|format('a', 1.5) }}|"
    template += "{{ '%d' % 3 }}|{{ '{:>4}'.format(7) }}|{{ messages[0].content.replace('h', 'H') }}|"
    template += (
        "{% set n = namespace(a=[1]) %}{% set n.a = n.a + [2] %}{% set x, y = 3, (4, 5) %}{{ n.a ~ x ~ y[1] ~ missing }}|"
    )
    template += "{{ messages|map(attribute='role')|join(',') }}|{{ messages|tojson }}"
    expected = 'a:   1.5|3|   7|Hi|[1, 2]35|user|[{"role": "user", "content": "hi"}]'
    assert render_chat(template, [{"role": "user", "content": "hi"}], {}) == expected


@pytest.mark.parametrize(
    "name, value",
    [
        ("llama.attention.head_count_kv", True),
        ("llama.block_count", ["a", "b"]),
        ("llama.attention.layer_norm_rms_epsilon", [["a"], ["b"]]),
        ("llama.rope.dimension_count", [1, 2]),
        ("tokenizer.ggml.bos_token_id", True),
        ("tokenizer.ggml.model", [1, 2]),
        ("tokenizer.ggml.add_bos_token", [1, 2]),
        ("tokenizer.ggml.token_type", ["x"] * len(TEXTS)),
        ("tokenizer.ggml.token_type", [6] * len(TEXTS)),
        ("tokenizer.ggml.scores", ["x"] * len(TEXTS)),
        ("tokenizer.ggml.scores", 1.0),
    ],
)
def test_metadata_of_another_type_is_an_error(name: str, value: Any, tmp_path: Path) -> None:
    checkpoint_path = write_llama(tmp_path / "m.gguf", **{name: value})
    with pytest.raises((ModelError, UnsupportedError)):
        checkpoint = read_checkpoint(checkpoint_path)
        build_decoder(checkpoint)
        tokenizer_of(checkpoint)


def test_a_tokenizer_that_fails_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    words = {**WORDS, "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "missing"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(ModelError, match="the tokenizer fails"):
        LibraryTokenizer.of_folder(tmp_path).encode("b")
