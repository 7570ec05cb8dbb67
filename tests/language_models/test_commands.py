"""`dlc generate` and `dlc serve` of a language model: the dtype of the KV cache, and drafts."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import dlc
from dlc.cli import main
from dlc.language_models.drafts import ModelDrafter
from dlc.language_models.language_model import LanguageModel
from dlc.language_models.sampling import Sampling
from dlc.language_models.step_sizes import CACHE_DTYPES
from tests.language_models.models import LLAMA, TEXTS, gguf_bytes, llama_tensors, use_cache, write_llama
from tests.serve.test_server import Client

uvicorn = pytest.importorskip("uvicorn")
SETTINGS: dict[str, Any] = {"context": 64, "num_threads": 1}
OPTIONS = ["--context", 64, "--num-threads", 1]
PROMPT, NUM_TOKENS = "ab cd ab", 12
# Prompts of several lengths, with a common prefix and without.
PROMPTS = [PROMPT, "ab", PROMPT + " and more", "x" * 20, PROMPT]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model, and one with other predictions; both use one cache."""
    folder = tmp_path_factory.mktemp("models")
    write_llama(folder / "small.gguf", is_quantized=False, num_layers=1)
    write_llama(folder / "other.gguf", is_quantized=False, num_layers=1, **{"llama.attention.layer_norm_rms_epsilon": 0.5})
    return folder


@pytest.fixture(autouse=True)
def cached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_cache(monkeypatch, folder / "cache")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def generated(*arguments: object) -> str:
    """Return the text that `dlc generate` prints."""
    result = invoke("generate", *arguments, *OPTIONS, "--prompt", PROMPT, "--max-tokens", NUM_TOKENS, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["text"]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that runs `dlc serve` in a thread, and returns the texts of prompts."""

    def texts(model: Path, prompts: Sequence[str], *arguments: object) -> list[str]:
        run, found = uvicorn.Server.run, list[str]()

        def run_requests(server: Any, sockets: Any) -> None:
            thread = threading.Thread(target=run, args=(server, sockets))
            thread.start()
            try:
                client = Client(sockets[0].getsockname()[1], None)
                for prompt in prompts:
                    body = {"prompt": prompt, "temperature": 0, "max_tokens": NUM_TOKENS}
                    status, answer = client.json("POST", "/v1/completions", body)
                    assert status == 200, answer
                    found.append(answer["choices"][0]["text"])
                client.connection.close()
            finally:
                server.should_exit = True
                thread.join(60)

        monkeypatch.setattr(uvicorn.Server, "run", run_requests)
        result = invoke("serve", model, *OPTIONS, "--port", 0, "--no-token", *arguments)
        assert result.exit_code == 0, result.output
        return found

    return texts


@pytest.mark.parametrize("dtype", CACHE_DTYPES)
def test_cache_dtype(dtype: str, folder: Path, served: Callable[..., list[str]]) -> None:
    path = folder / "small.gguf"
    model = LanguageModel.load(path, cache_dtype=dtype, **SETTINGS)
    caches = {info.dtype for info in model.model.inputs if info.name.startswith("caches") and len(info.shape) == 3}
    assert caches == {np.dtype(CACHE_DTYPES[dtype])}
    expected = dlc.generate(model, PROMPT, max_tokens=NUM_TOKENS)
    assert generated(path, "--cache-dtype", dtype) == expected.text
    assert served(path, [PROMPT], "--cache-dtype", dtype) == [expected.text]
    # Each token is one of the most probable ones of an f32 cache.
    session = LanguageModel.load(path, cache_dtype="f32", **SETTINGS).session()
    session.advance(expected.prompt_tokens, Sampling())
    for token in expected.tokens:
        logits = np.array(session.logits)
        assert logits[token] >= logits.max() - (0 if dtype == "f32" else 0.02 * np.abs(logits).max())
        session.advance([token], Sampling())


def test_activation_bits(folder: Path, served: Callable[..., list[str]]) -> None:
    path = folder / "small.gguf"
    expected = dlc.generate(LanguageModel.load(path, activation_bits=16, **SETTINGS), PROMPT, max_tokens=NUM_TOKENS)
    assert generated(path, "--activation-bits", 16) == expected.text
    assert served(path, [PROMPT], "--activation-bits", 16) == [expected.text]


@pytest.mark.parametrize("command", ["generate", "serve"])
def test_an_unknown_cache_dtype_is_an_error(command: str, folder: Path) -> None:
    prompt = ["--prompt", PROMPT] * (command == "generate")
    result = invoke(command, folder / "small.gguf", "--cache-dtype", "int4", *prompt)
    assert result.exit_code == 2
    assert "--cache-dtype" in result.output and "'int4' is not one of 'f32', 'f16', 'int8'" in result.output


@pytest.mark.parametrize("draft_model", ["small.gguf", "other.gguf"])
def test_draft_models_do_not_change_the_text(
    draft_model: str, folder: Path, served: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, propose = folder / "small.gguf", ModelDrafter.propose
    num_accepted = Counter[bool]()
    model = LanguageModel.load(path, **SETTINGS)
    expected = [dlc.generate(model, prompt, max_tokens=NUM_TOKENS) for prompt in PROMPTS]
    texts = [[*result.prompt_tokens, *result.tokens] for result in expected]

    def counted(drafter: ModelDrafter, tokens: Sequence[int], count: int) -> list[int]:
        draft = propose(drafter, tokens, count)
        num_accepted[any(text[: len(tokens) + 1] == [*tokens, draft[0]] for text in texts)] += 1
        return draft

    monkeypatch.setattr(ModelDrafter, "propose", counted)
    drafts = ["--draft-model", folder / draft_model, "--draft-tokens", 3]
    assert served(path, PROMPTS, *drafts) == [result.text for result in expected]
    assert generated(path, *drafts) == expected[0].text
    assert num_accepted[True] and (num_accepted[False] > 0) == (draft_model != "small.gguf")


@pytest.mark.parametrize("command", ["generate", "serve"])
def test_unsuitable_drafts_are_errors(command: str, folder: Path, tmp_path: Path) -> None:
    path, prompt = folder / "small.gguf", ["--prompt", PROMPT] * (command == "generate")
    result = invoke(command, path, *OPTIONS, *prompt, "--draft-model", folder / "other.gguf")
    assert result.exit_code == 1 and "draft_tokens" in result.output
    tensors = llama_tensors(is_quantized=False, num_layers=1)
    for name in ("token_embd.weight", "output.weight"):
        (_, size), dtype, data = tensors[name]
        tensors[name] = (len(TEXTS) - 1, size), dtype, data[: -4 * size]
    metadata: dict[str, Any] = {**LLAMA, "llama.block_count": 1}
    for field in ("tokens", "scores", "token_type"):
        metadata[f"tokenizer.ggml.{field}"] = metadata[f"tokenizer.ggml.{field}"][:-1]
    (tmp_path / "fewer.gguf").write_bytes(gguf_bytes(metadata, tensors))
    result = invoke(command, path, *OPTIONS, *prompt, "--draft-model", tmp_path / "fewer.gguf", "--draft-tokens", 3)
    assert result.exit_code == 1 and f"a vocabulary of {len(TEXTS) - 1} tokens" in " ".join(result.output.split())
    if command == "serve":
        result = invoke(command, path, *OPTIONS, "--draft-tokens", 3, "--streams", 2)
        assert result.exit_code == 1 and "draft_tokens = 3" in result.output and "max_texts = 1" in result.output
