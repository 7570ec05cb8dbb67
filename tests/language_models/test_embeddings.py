"""Embeddings of encoders equal those of Transformers, and do not depend on other texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import ArgumentError, DTypeError, ModelError, UnsupportedError
from dlc.language_models.embedding_model import EmbeddingModel
from dlc.runtime.models.specialized_model import SpecializedModel
from tests.language_models.models import RECORDED_ENCODERS, TOKENS, run_without_compiler, use_cache, write_encoder

MODELS: dict[str, Any] = json.loads(RECORDED_ENCODERS.read_text())


def load(folder: Path, **options: Any) -> EmbeddingModel:
    return EmbeddingModel.load(folder, target="reference", **options)


@pytest.mark.parametrize("name", MODELS)
def test_vectors_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    recorded = MODELS[name]
    model = load(write_encoder(tmp_path, name), pooling="cls" if name == "bert" else "mean")
    vectors = model.embed([TOKENS[:3], TOKENS, TOKENS[5:]])
    expected = np.array(recorded["cls" if name == "bert" else "mean"])
    np.testing.assert_allclose(vectors[1], expected, atol=2e-5 * np.abs(expected).max())
    assert model.max_tokens == (22 if name == "xlm-roberta" else 24)


def test_stored_truncation_and_padding_are_ignored(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    model = load(write_encoder(tmp_path))
    assert model.token_ids("a b a b a") == [1, 2, 1, 2, 1]


def test_texts_are_independent_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_cache(monkeypatch, tmp_path / "cache")
    folder = write_encoder(tmp_path / "model")
    model = EmbeddingModel.load(folder, normalize=True, num_threads=1)
    texts = [TOKENS, TOKENS[:1], TOKENS + TOKENS]
    together = dlc.embed(model, texts)
    # One program for all sizes, which can be cached.
    assert not isinstance(model.model.artifact, SpecializedModel)
    assert all(np.array_equal(dlc.embed(model, [text])[0], vector) for text, vector in zip(texts, together, strict=True))
    np.testing.assert_allclose((together**2).sum(-1), 1, atol=1e-5)
    program = "import sys, dlc; print(dlc.embed(sys.argv[1], [[5, 17, 3]], normalize=True, num_threads=1).tobytes().hex())"
    assert run_without_compiler(program, folder) == [dlc.embed(model, [[5, 17, 3]]).tobytes().hex()]


def test_settings_of_sentence_transformers(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    modules = [
        {"type": f"sentence_transformers.models.{k}", "path": p} for k, p in (("Transformer", ""), ("Pooling", "1_Pooling"))
    ]
    (tmp_path / "1_Pooling").mkdir()
    pooling = tmp_path / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    (tmp_path / "modules.json").write_text(json.dumps([*modules, {"type": "Normalize", "path": "2_Normalize"}]))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 12}')
    model, cls = load(tmp_path), np.array(MODELS["bert"]["cls"])
    np.testing.assert_allclose(model.embed([TOKENS])[0], cls / np.linalg.norm(cls), atol=1e-5)
    assert model.max_tokens == 12
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}))
    with pytest.raises(UnsupportedError, match="pooling_mode_cls_token, pooling_mode_max_tokens"):
        load(tmp_path)
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True}))
    (tmp_path / "modules.json").write_text(json.dumps([*modules, {"type": "Dense", "path": "2_Dense"}]))
    with pytest.raises(UnsupportedError, match="'Dense'"):
        load(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps([{"type": "Pooling", "path": "../../other"}]))
    with pytest.raises(ModelError, match="other"):
        load(tmp_path)


def test_errors_name_the_problem(tmp_path: Path) -> None:
    model = load(write_encoder(tmp_path))
    with pytest.raises(ArgumentError, match=r"25 tokens; .* supports up to 24"):
        model.embed([[5] * 25])
    with pytest.raises(ArgumentError, match="ids below 96"):
        model.embed([[96]])
    for tokens in ("text", b"text", None):
        with pytest.raises(ArgumentError, match="expected a list of texts"):
            model.embed(tokens)  # pyright: ignore[reportArgumentType]
    for token in (5, b"text"):
        with pytest.raises(ArgumentError, match="expected a text, a str, or the list"):
            model.embed([token])  # pyright: ignore[reportArgumentType]
    with pytest.raises(DTypeError, match="expected a list"):
        dlc.embed(model, "text")
    with pytest.raises(ArgumentError, match="pooling = 'median'"):
        load(tmp_path, pooling="median")
    with pytest.raises(UnsupportedError, match=r"dlc\.embed"):
        dlc.LanguageModel.load(tmp_path)
    with pytest.raises(UnsupportedError, match="position_embedding_type = 'relative_key'"):
        load(write_encoder(tmp_path, position_embedding_type="relative_key"))
    with pytest.raises(UnsupportedError, match="'t5' is not an encoder"):
        load(write_encoder(tmp_path, model_type="t5"))
