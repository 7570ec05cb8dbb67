"""Options of the commands that generate text."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from dlc.language_models.step_sizes import ACTIVATION_BITS, CACHE_DTYPES

C = TypeVar("C", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--context",
        type=click.IntRange(1),
        help="The maximum number of tokens of a text (default: that of the model, at most 8192).",
    ),
    click.option(
        "--cache-dtype",
        type=click.Choice(list(CACHE_DTYPES)),
        default="f16",
        show_default=True,
        help="The dtype of the KV cache; int8 takes half of the memory.",
    ),
    click.option(
        "--activation-bits",
        type=click.Choice(list(map(str, ACTIVATION_BITS))),
        default="8",
        show_default=True,
        help="The minimum bits to which products with quantized weights round activations: 8 is faster, 16 more accurate.",
    ),
    click.option(
        "--draft-tokens",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        help="The number of draft tokens that a step verifies; needs one text at a time.",
    ),
    click.option(
        "--draft-model", type=click.Path(exists=True, path_type=Path), help="A smaller model that proposes draft tokens."
    ),
)


def language_model_options(command: C) -> C:
    """Add the options of a loaded language model to a command."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)
