"""The minimum bits of activations in products with quantized weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc.errors import ArgumentError
from dlc.language_models.language_model import LanguageModel
from dlc.language_models.sampling import Sampling
from dlc.language_models.step_sizes import ACTIVATION_BITS, StepSizes
from tests.language_models.models import write_llama

# A prompt longer than those whose activations always have 16 bits.
PROMPT = [int(token) for token in np.random.default_rng(0).integers(3, 100, 100)]


def _logits(path: Path, **settings: Any) -> np.ndarray:
    session = LanguageModel.load(path, cache_dtype="f32", context=128, **settings).session()
    session.advance(PROMPT, Sampling())
    return np.array(session.logits, np.float64)


def test_more_bits_are_more_accurate(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf", num_layers=1)
    # Chunks read the caches that earlier chunks wrote, on the reference target as well, which returns new arrays.
    exact = _logits(path, target="reference")
    rough, fine = (np.linalg.norm(_logits(path, activation_bits=b) - exact) / np.linalg.norm(exact) for b in ACTIVATION_BITS)
    assert fine < 2e-4 and fine <= rough < 5e-2


def test_programs_that_are_always_accurate_ignore_the_option() -> None:
    fast, accurate = (StepSizes(128, (16, 64), num_slots=8, min_activation_bits=bits) for bits in ACTIVATION_BITS)
    assert [fast.activation_bits(*program) for program in fast.programs] == [16, 16, 8, 8, 8]
    assert {accurate.activation_bits(*program) for program in accurate.programs} == {16}


def test_other_bits_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="activation_bits = 4; expected 8 or 16"):
        LanguageModel.load(write_llama(tmp_path / "m.gguf"), activation_bits=4)
