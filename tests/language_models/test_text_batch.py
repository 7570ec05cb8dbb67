"""Texts that are decoded together: each continues as it does alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.errors import ArgumentError
from dlc.language_models.generated_text import Generation, Text
from dlc.language_models.language_model import LanguageModel
from dlc.language_models.sampling import Sampling
from dlc.language_models.step_runner import StepRunner, TextPart
from dlc.language_models.text_batch import TextBatch
from tests.language_models.models import TEXTS, write_llama

RNG = np.random.default_rng(2)
PROMPTS = [[int(t) for t in RNG.integers(259, len(TEXTS), n)] for n in (3, 70, 1, 17, 5)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """Return a model in floats, whose results do not depend on the number of rows, for three texts together."""
    path = write_llama(tmp_path_factory.mktemp("models") / "small.gguf", is_quantized=False)
    return LanguageModel.load(path, cache_dtype="f32", max_texts=3, num_threads=1)


def finish(batch: TextBatch) -> dict[Text, Generation]:
    results: dict[Text, Generation] = {}
    while batch.running or batch.waiting:
        for text, event in batch.advance():
            assert not isinstance(event, Exception)
            if isinstance(event, Generation):
                results[text] = event
    return results


def test_batched_texts_continue_as_single_texts(model: LanguageModel) -> None:
    """Prompts of different lengths, of one chunk and several; more texts than slots."""
    together = dlc.generate_batch(model, PROMPTS, max_tokens=9)
    alone = [dlc.generate(model, prompt, max_tokens=9) for prompt in PROMPTS]
    assert [r.tokens for r in together] == [r.tokens for r in alone]
    assert [(r.text, r.finish_reason, r.prompt_tokens) for r in together] == [
        (r.text, r.finish_reason, r.prompt_tokens) for r in alone
    ]


def test_texts_have_separate_settings(model: LanguageModel) -> None:
    settings = [Sampling(), Sampling(temperature=1.0, seed=4), Sampling(temperature=0.7, top_k=5, repetition_penalty=1.3)]
    batch = model.batch()
    texts = [batch.add(PROMPTS[0], 8, sampling, ignore_end=True) for sampling in settings]
    results = finish(batch)
    for text, sampling in zip(texts, settings, strict=True):
        alone = model.batch()
        same = alone.add(PROMPTS[0], 8, sampling, ignore_end=True)
        assert results[text].tokens == finish(alone)[same].tokens


def test_rows_do_not_depend_on_each_other(model: LanguageModel) -> None:
    """The logits of a text are equal bit for bit with other texts or padding in the step, and in any slot."""

    def logits(order: Sequence[int]) -> Any:
        runner = StepRunner(model.model)
        for slot, k in enumerate(order):
            runner.run([TextPart(PROMPTS[k][:3], 0, slot, Sampling())])
        _, rows = runner.run([TextPart([260 + k], 3, slot, Sampling()) for slot, k in enumerate(order)])
        return np.array(rows[order.index(0)])

    expected = logits([0, 1])
    np.testing.assert_array_equal(logits([0, 3]), expected)
    np.testing.assert_array_equal(logits([3, 1, 0]), expected)


def test_overflow_of_a_text_does_not_reach_later_ones_in_its_slot(model: LanguageModel) -> None:
    """Infinite values of f16 caches would be multiplied by weights of 0."""
    tokens, results = PROMPTS[3], []
    for initial in (0, np.inf):
        runner = StepRunner(model.model)
        for cache in runner._state[1:]:
            cache[...] = initial
        runner.run([TextPart(tokens[:5], 0, 1, Sampling())])
        results.append(runner.run([TextPart(tokens[5:6], 5, 1, Sampling())])[1][0])
    np.testing.assert_array_equal(*results)


def test_cancelled_texts_leave_their_slots_to_others(model: LanguageModel) -> None:
    expected = dlc.generate(model, PROMPTS[3], max_tokens=6).tokens
    batch = model.batch()
    long = [batch.add(PROMPTS[k], 50, Sampling(), ignore_end=True) for k in range(3)]
    waiting = [batch.add(PROMPTS[3], 6, Sampling()), batch.add(PROMPTS[4], 50, Sampling(), ignore_end=True)]
    for _ in range(8):
        list(batch.advance())
    assert len(batch.running) == 3 and list(batch.waiting) == waiting
    for text in (*long[:2], waiting[1]):
        text.is_cancelled = True
    results = finish(batch)
    assert results.keys() == {long[2], waiting[0]}
    assert results[waiting[0]].tokens == expected


def test_errors_end_the_texts_of_a_step_only(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = model.batch()
    failing, other = batch.add(PROMPTS[1], 4, Sampling()), batch.add(PROMPTS[0], 4, Sampling())
    with monkeypatch.context() as patch:
        patch.setattr(StepRunner, "run", lambda runner, parts: 1 / 0)
        ((text, event),) = list(batch.advance())
    assert text is failing and isinstance(event, ZeroDivisionError)
    assert finish(batch).keys() == {other}
    with pytest.raises(ArgumentError, match="ids below"):
        batch.add([10**6], 4, Sampling())
    with pytest.raises(ArgumentError, match="ids below"):
        batch.add([1.5], 4, Sampling())
    with pytest.raises(ArgumentError, match="ids below"):
        batch.add([True], 4, Sampling())


@pytest.mark.parametrize("value", [0, 1.5, True, "1"])
def test_sizes_are_positive_integers(model: LanguageModel, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"max_tokens = {value!r}; expected an integer >= 1"):
        model.batch().add(PROMPTS[0], value, Sampling())
    with pytest.raises(ArgumentError, match=f"max_texts = {value!r}; expected an integer from 1"):
        LanguageModel.load("m.gguf", max_texts=value)
    with pytest.raises(ArgumentError, match=f"context = {value!r}; expected an integer >= 1"):
        LanguageModel.load("m.gguf", context=value)


@pytest.mark.parametrize("value", [-1, 1.5, True, 1 << 63])
@pytest.mark.parametrize("name", ["seed", "top_k"])
def test_sampling_settings_are_integers(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{name} = {value!r}; expected an integer from 0"):
        Sampling(**{name: value})


def test_sampling_settings_of_numpy() -> None:
    arrays = Sampling(temperature=np.float32(0.5), seed=np.int64(3)).arrays()  # pyright: ignore[reportArgumentType]
    assert (arrays["temperature"], arrays["seed"]) == (0.5, 3)


def test_events_may_be_ignored(model: LanguageModel) -> None:
    """A caller that takes one event of a step and leaves the others does not change the texts."""
    batch = model.batch()
    texts = [batch.add(np.array(prompt), 5, Sampling(), ignore_end=True) for prompt in PROMPTS[:4]]
    while batch.running or batch.waiting:
        for _ in batch.advance():
            break
    assert [text.tokens for text in texts] == [r.tokens for r in dlc.generate_batch(model, PROMPTS[:4], max_tokens=5)]


def test_texts_may_be_added_while_others_are_removed(model: LanguageModel) -> None:
    batch = model.batch()

    class AddingText(Text):
        """A text that is queried while another thread adds a text."""

        @property
        def is_cancelled(self) -> bool:
            if len(batch.waiting) < 3:
                batch.add(PROMPTS[0], 1, Sampling())
            return True

        @is_cancelled.setter
        def is_cancelled(self, value: bool) -> None:
            pass

    batch.waiting.append(AddingText(PROMPTS[0], 1, Sampling(), frozenset()))
    batch.add(PROMPTS[0], 1, Sampling())
    assert len(finish(batch)) == 2
