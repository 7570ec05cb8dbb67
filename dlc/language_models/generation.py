"""Public functions: generate text with a language model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from os import PathLike
from typing import Any, cast

from dlc.errors import ArgumentError
from dlc.language_models.generated_text import Generation, Text
from dlc.language_models.language_model import LanguageModel, stream
from dlc.language_models.sampling import Sampling
from dlc.language_models.setting_limits import require_integer


def generate(
    model: str | PathLike[str] | LanguageModel,
    prompt: str | Sequence[int] | Sequence[Mapping[str, str]],
    *,
    max_tokens: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    context: int | None = None,
    draft_tokens: int = 0,
    draft_model: str | PathLike[str] | LanguageModel | None = None,
    target: str = "cpu",
    num_threads: int | None = None,
    cache: bool | None = None,
    on_text: Callable[[str], Any] | None = None,
) -> Generation:
    """Continue a prompt with the language model of a GGUF file or a Hugging Face folder (docs/language_models.md).

    Args:
        model: The path, or a `LanguageModel.load` of it, which several calls share.
        prompt: A text, token ids, or a conversation: messages with a `role` and a `content`, for the model's chat template.
        max_tokens: The maximum number of generated tokens.
        temperature: Divides the logits before a token is drawn; 0 takes the most probable one.
        top_k: Draw from the k most probable tokens; 0 for all.
        top_p: Draw from the most probable tokens whose probabilities sum to p.
        min_p: Draw from tokens with at least p times the largest probability.
        repetition_penalty: Divides positive logits of tokens that occurred before, and multiplies negative ones.
        seed: The seed of the random draws.
        context: The maximum number of tokens of a text; by default that of the model, up to 8192.
        draft_tokens: The maximum number of draft tokens that a step verifies (speculative decoding); 0 for none. The text is
            the same. For a loaded model pass it to `LanguageModel.load`.
        draft_model: A smaller model with the same vocabulary, which proposes draft tokens; the default is prompt lookup.
        num_threads: Number of threads; by default one per processor that this process may use.
        cache: Store the compiled model in the cache, and load it from there.
        on_text: Called with each piece of text when it is generated.

    Raises ModelError for a damaged checkpoint, UnsupportedError for one with an unknown family, option or tensor, and
    ArgumentError for a prompt that exceeds the context.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
    require_integer("max_tokens", max_tokens, 1)
    if not isinstance(model, LanguageModel):
        model = LanguageModel.load(
            model, target=target, context=context, draft_tokens=draft_tokens, num_threads=num_threads, cache=cache
        )
    if draft_model is not None and not isinstance(draft_model, LanguageModel):
        draft_model = LanguageModel.load(draft_model, target=target, context=context, num_threads=num_threads, cache=cache)
    pieces = stream(model, prompt_ids(model, prompt), max_tokens, sampling, draft_model=draft_model)
    return finish(pieces, on_text or (lambda piece: None))


def generate_batch(
    model: LanguageModel,
    prompts: Sequence[str | Sequence[int] | Sequence[Mapping[str, str]]],
    *,
    max_tokens: int = 128,
    sampling: Sampling | None = None,
) -> list[Generation]:
    """Continue several prompts together, in steps of up to `max_texts` texts (docs/language_models.md).

    `max_texts` is an argument of `LanguageModel.load`; further texts start when others end. `sampling` is greedy by default.
    Returns the results in the order of `prompts`. Raises ArgumentError for a prompt that exceeds the context.
    """
    batch = model.batch()
    texts = [batch.add(prompt_ids(model, prompt), max_tokens, sampling or Sampling()) for prompt in prompts]
    results: dict[Text, Generation] = {}
    while len(results) < len(texts):
        for text, event in batch.advance():
            if isinstance(event, Exception):
                raise event
            if isinstance(event, Generation):
                results[text] = event
    return [results[text] for text in texts]


def prompt_ids(model: LanguageModel, prompt: str | Sequence[int] | Sequence[Mapping[str, str]]) -> list[int]:
    """Return the token ids of a text, of ids, or of a conversation."""
    if isinstance(prompt, str):
        ids = model.text_prompt(prompt)
    elif len(prompt) and isinstance(prompt[0], Mapping):
        ids = model.chat_prompt(cast("Sequence[dict[str, str]]", prompt))
    else:
        ids = list(cast("Sequence[int]", prompt))
    if not ids:
        raise ArgumentError("the prompt is empty, and the model has no token that begins a text")
    return ids


def finish(pieces: Generator[str, None, Generation], on_text: Callable[[str], Any]) -> Generation:
    """Call `on_text` with each piece, and return the whole result."""
    while True:
        try:
            on_text(next(pieces))
        except StopIteration as end:
            return end.value
