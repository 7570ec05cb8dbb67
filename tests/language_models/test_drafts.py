"""Speculative decoding: draft tokens save steps and do not change the text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import dlc
from dlc.errors import ArgumentError
from dlc.language_models.drafts import ModelDrafter, NgramDrafter
from dlc.language_models.language_model import LanguageModel
from dlc.language_models.sampling import Sampling
from dlc.language_models.step_runner import StepRunner, TextPart
from tests.language_models.models import write_llama

PROMPT = [5, 17, 3, 88, 41, 9]


@pytest.mark.parametrize(
    "tokens, expected",
    [
        ([1, 2, 3, 4, 1, 2, 3], [4, 1]),
        ([1, 2, 9, 1, 2, 8, 1, 2], [8, 1]),  # The last occurrence.
        ([7, 1, 2, 3, 9, 2, 3, 8, 1, 2, 3], [9, 2]),  # Three tokens before two.
        ([4, 4, 4], [4]),
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_ngrams(tokens: list[int], expected: list[int]) -> None:
    assert NgramDrafter().propose(tokens, 2) == expected


class Counter:
    """A session whose next token is the last one plus 1."""

    def __init__(self) -> None:
        self.position, self.num_processed = 0, 0

    def advance(self, tokens: Sequence[int], sampling: Sampling) -> int:
        self.position += len(tokens)
        self.num_processed += len(tokens)
        return tokens[-1] + 1


def test_a_draft_model_processes_common_tokens_once() -> None:
    counter = Counter()
    drafter = ModelDrafter(counter, context=10)
    assert drafter.propose([1, 2, 3], 3) == [4, 5, 6] and counter.num_processed == 5
    assert drafter.propose([1, 2, 3, 4, 8], 2) == [9, 10] and counter.position == 6 and counter.num_processed == 7
    assert drafter.propose(list(range(9)), 4) == [9] and drafter.propose(list(range(10)), 4) == []


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    path = write_llama(tmp_path_factory.mktemp("models") / "small.gguf", is_quantized=False, num_layers=1)
    return LanguageModel.load(path, draft_tokens=3, num_threads=1)


class WrongDrafter:
    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        return [(token + 1) % 50 for token in tokens[-count:]]


class KnownDrafter:
    """Proposes the tokens of a known text, and a wrong one after every second of them."""

    def __init__(self, known: Sequence[int]) -> None:
        self.known = list(known)

    def propose(self, tokens: Sequence[int], count: int) -> list[int]:
        following = self.known[len(tokens) : len(tokens) + count]
        return [*following[:2], *((t + 1) % 50 for t in following[2:])]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=2.0, seed=3), Sampling(repetition_penalty=1.5)], ids=str)
def test_drafts_do_not_change_the_text(model: LanguageModel, sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    num_steps, run = [0], StepRunner.run

    def counted(runner: StepRunner, parts: Sequence[TextPart]) -> object:
        num_steps[0] += 1
        return run(runner, parts)

    session, tokens = model.session(), list[int]()
    tokens.append(session.advance(PROMPT, sampling))
    while len(tokens) < 24:
        tokens.append(session.advance(tokens[-1:], sampling))
    monkeypatch.setattr(StepRunner, "run", counted)
    for drafter in (NgramDrafter(), WrongDrafter(), KnownDrafter([*PROMPT, *tokens])):
        batch = model.batch(drafter)
        text = batch.add(PROMPT, 24, sampling, ignore_end=True)
        while not text.tokens:
            list(batch.advance())
        # The last step of the prompt is followed by one of a token.
        num_steps[0] = 0
        while text.finish_reason is None:
            list(batch.advance())
        assert text.tokens == tokens
    # Two of three tokens were accepted draft tokens.
    assert num_steps[0] == (22 if sampling.repetition_penalty != 1 else 7)


def test_drafts_end_at_the_context(model: LanguageModel) -> None:
    prompt = list(range(10, 130))
    assert len(dlc.generate(model, prompt, max_tokens=20, seed=1).tokens) <= 8


def test_unsuitable_models_are_errors(model: LanguageModel, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="draft_tokens = 4 with max_texts = 2; drafts need max_texts = 1"):
        LanguageModel.load(tmp_path, draft_tokens=4, max_texts=2)
