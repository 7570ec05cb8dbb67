"""Generation: sessions, sampling, tokenizers, the cache, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dlc
import dlc.numpy as dnp
from dlc.cli import main
from dlc.errors import ArgumentError, ModelError, UnsupportedError
from dlc.language_models.checkpoints.reading import read_checkpoint
from dlc.language_models.language_model import LanguageModel
from dlc.language_models.sampling import Sampling
from dlc.language_models.token_choice import choose_token
from dlc.language_models.tokenizers.reading import tokenizer_of
from dlc.language_models.tokenizers.score_tokenizer import ScoreTokenizer
from dlc.language_models.tokenizers.tokenizer import decode
from dlc.runtime.models.model import Model
from tests.language_models.models import LLAMA, TEXTS, run_without_compiler, use_cache, write_llama, write_mixture


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("models") / "small.gguf")


@pytest.fixture(scope="module")
def model(path: Path) -> LanguageModel:
    return LanguageModel.load(path, num_threads=1)


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cached(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one cache for the tests of this module that load the model again: they compile it once."""
    use_cache(monkeypatch, cache_folder)


def test_tokens_of_a_prompt_are_read_together_or_one_at_a_time(model: LanguageModel) -> None:
    """A prompt of more than one chunk, of padding, and token by token gives the same cache and logits."""
    prompt = [int(t) for t in np.random.default_rng(0).integers(3, len(TEXTS), 70)]
    whole, single = model.session(), model.session()
    whole.advance(prompt, Sampling())
    for token in prompt:
        single.advance([token], Sampling())
    assert whole.position == single.position == 70
    # Rows of prompts may be rounded to 8 bits.
    scale = np.abs(np.asarray(single.logits)).max()
    np.testing.assert_allclose(whole.logits, single.logits, atol=0.05 * scale)


def test_a_mixture_of_equal_experts_is_their_mlp(model: LanguageModel, tmp_path: Path) -> None:
    dense, mixture = model.session(), LanguageModel.load(write_mixture(tmp_path / "mixture.gguf"), num_threads=1).session()
    for token in (5, 9, 7):
        for session in (dense, mixture):
            session.advance([token], Sampling())
    expected = np.asarray(dense.logits)
    np.testing.assert_allclose(mixture.logits, expected, atol=1e-4 * np.abs(expected).max())


def test_sessions_are_independent(model: LanguageModel) -> None:
    expected = dlc.generate(model, "ab cd", max_tokens=8).tokens
    model.session().advance([5, 6, 7], Sampling(temperature=1, seed=3))
    assert dlc.generate(model, "ab cd", max_tokens=8).tokens == expected


def test_seeds_determine_draws(model: LanguageModel) -> None:
    def draw(seed: int) -> list[int]:
        return dlc.generate(model, "ab", max_tokens=12, temperature=2.0, seed=seed).tokens

    assert draw(1) == draw(1) != draw(2)
    assert (
        dlc.generate(model, "ab", max_tokens=6, temperature=1.0, top_k=1).tokens
        == dlc.generate(model, "ab", max_tokens=6).tokens
    )


def test_limits_of_the_context(model: LanguageModel, path: Path) -> None:
    assert model.context == 128
    result = dlc.generate(model, [5] * 120, max_tokens=100)
    assert result.finish_reason == "end" or len(result.tokens) == 8
    with pytest.raises(ArgumentError, match="exceed the context of 128"):
        dlc.generate(model, [5] * 129)
    with pytest.raises(ArgumentError, match="ids below"):
        dlc.generate(model, [10**6])
    with pytest.raises(ArgumentError, match="1000000 characters exceeds the context of 128 tokens"):
        dlc.generate(model, "a" * 10**6)
    with pytest.raises(ArgumentError, match="supports 1 to 128"):
        LanguageModel.load(path, context=4096)


@pytest.mark.usefixtures("cached")
def test_cached_models_generate_the_same(path: Path) -> None:
    first = dlc.generate(LanguageModel.load(path), "ab", max_tokens=5)
    steps: list[str] = []
    second = dlc.generate(LanguageModel.load(path, progress=steps.append), "ab", max_tokens=5)
    assert first.tokens == second.tokens and steps and not any("compiling" in step for step in steps)
    command = ["generate", path, "--prompt", "ab", "--max-tokens", 5, "--json"]
    (printed,) = run_without_compiler("from dlc.cli import main; main(standalone_mode=False)", *command)
    assert json.loads(printed)["tokens"] == first.tokens


@pytest.mark.usefixtures("cached")
def test_a_file_that_changes_during_compilation_is_not_cached(
    tmp_path: Path, model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_llama(tmp_path / "m.gguf", **{"llama.rope.freq_base": 5000.0})

    def replace_file(*_: object) -> Model:
        write_llama(tmp_path / "new.gguf").replace(file)
        return model.model

    monkeypatch.setattr("dlc.language_models.step_program.compile_steps", replace_file)
    with pytest.raises(ModelError, match="changed during compilation"):
        LanguageModel.load(file)


def test_a_step_writes_its_caches_in_place(model: LanguageModel) -> None:
    program = model.session()._runner._programs[1, 1]  # pyright: ignore[reportPrivateUsage]
    host = program.artifact.host  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    names = [info.name for info in program.inputs]
    donated = {names[k] for k in host.donors.values()}
    assert donated == {"seen", *(name for name in names if name.startswith("caches"))}
    # Neither a copy of a cache nor a temporary of its size.
    cache_bytes = 128 * 2 * 16 * 2
    assert host.arena_bytes < cache_bytes * 4 + (1 << 16)


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize("chat", [False, True])
def test_command(path: Path, chat: bool) -> None:
    arguments = ["generate", str(path), "--prompt", "ab", "--max-tokens", "4", "--threads", "1", "--json"]
    result = CliRunner().invoke(main, arguments + ["--chat"] * chat)
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert {"text", "tokens", "tokens_per_s", "prompt_tokens_per_s"} <= printed.keys()
    assert printed["prompt_tokens"][0] == 1 and len(printed["tokens"]) <= 4
    streamed = CliRunner().invoke(main, arguments[:-1] + ["--chat"] * chat)
    assert streamed.stdout == printed["text"] + "\n"


@pytest.mark.usefixtures("cached")
def test_command_reports_errors(path: Path, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(path.read_bytes()[:5000])
    result = CliRunner().invoke(main, ["generate", str(tmp_path / "m.gguf"), "--prompt", "ab"])
    assert result.exit_code == 1 and "truncated" in result.output
    result = CliRunner().invoke(main, ["generate", str(path), "--prompt", "ab", "--top-p", "3"])
    assert result.exit_code == 1 and "top_p = 3.0" in result.output


def test_score_tokenizer() -> None:
    tokenizer = ScoreTokenizer.of_gguf(LLAMA, "m")
    ids = tokenizer.encode("ab c é✓</s>x")
    texts = [TEXTS[i] for i in ids]
    assert texts == ["<s>", "\u2581ab", "\u2581", "c", "\u2581", "é", "<0xE2>", "<0x9C>", "<0x93>", "</s>", "x"]
    assert decode(tokenizer, ids) == " ab c é✓x"
    assert tokenizer.end_tokens == {2}


def test_a_model_without_a_template_has_no_chat(model: LanguageModel, tmp_path: Path) -> None:
    metadata: dict[str, Any] = {"tokenizer.chat_template": ""}
    tokenizer = tokenizer_of(read_checkpoint(write_llama(tmp_path / "m.gguf", **metadata)))
    with pytest.raises(UnsupportedError, match="no chat template"):
        dlc.generate(replace(model, _tokenizer=tokenizer), [{"role": "user", "content": "hi"}])


@dlc.jit(static_argnames=("draws",))
def draw_tokens(logits: Any, seen: Any, settings: Any, draws: int) -> Any:
    """Draw tokens at different positions."""
    return dlc.lax.map(lambda p: choose_token(logits, seen, p, settings), dnp.arange(draws))


def sample(logits: np.ndarray, **settings: Any) -> set[int]:
    """Return the tokens that are drawn at different positions."""
    seen = np.zeros(len(logits), np.bool_)
    return {int(t) for t in np.asarray(draw_tokens(logits, seen, Sampling(**settings).arrays(), draws=300))}


def test_settings_limit_the_tokens_that_are_drawn() -> None:
    logits = np.log(np.float32([0.4, 0.05, 0.3, 0.05, 0.2]))
    assert sample(logits, temperature=1.0) == {0, 1, 2, 3, 4}
    assert sample(logits, temperature=1.0, top_k=2) == {0, 2}
    assert sample(logits, temperature=1.0, top_p=0.71) == {0, 2, 4}
    assert sample(logits, temperature=1.0, top_p=0.0) == {0}
    assert sample(logits, temperature=1.0, min_p=0.45) == {0, 2, 4}
    assert sample(logits) == {0}


def test_frequencies_of_draws() -> None:
    probabilities = np.float32([0.5, 0.3, 0.2])

    @dlc.jit
    def draw(logits: Any, settings: Any) -> Any:
        return dlc.lax.map(lambda p: choose_token(logits, np.zeros(3, np.bool_), p, settings), dnp.arange(4000))

    tokens = np.asarray(draw(np.log(probabilities), Sampling(temperature=1.0, seed=5).arrays()))
    np.testing.assert_allclose(np.bincount(tokens) / 4000, probabilities, atol=0.03)
