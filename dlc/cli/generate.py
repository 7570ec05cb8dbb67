"""`dlc generate`: continue a prompt with a language model."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from dlc.cli.common import examples, json_option, progress_display, reports_errors, target_option
from dlc.cli.compile_options import compile_options
from dlc.cli.language_model_options import language_model_options
from dlc.instrument.report import Progress, ProgressEvent
from dlc.language_models.generation import finish, prompt_ids
from dlc.language_models.language_model import LanguageModel, stream
from dlc.language_models.sampling import Sampling


@click.command(
    "generate",
    epilog=examples(
        'dlc generate model.gguf --prompt "The capital of France is"',
        'dlc generate folder --chat --prompt "Name three rivers." --temperature 0.7 --top-p 0.9',
    ),
)
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option("--prompt", required=True, help="The text to continue; - reads it from standard input.")
@click.option("--chat", is_flag=True, help="The prompt is a message of the user: apply the model's chat template.")
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True, help="The maximum number of tokens.")
@click.option(
    "--temperature", type=float, default=0.0, show_default=True, help="Sampling temperature; 0 takes the most probable token."
)
@click.option(
    "--top-k", type=click.IntRange(0), default=0, show_default=True, help="Sample from the k most probable tokens; 0: from all."
)
@click.option(
    "--top-p",
    type=float,
    default=1.0,
    show_default=True,
    help="Sample from the most probable tokens with this total probability.",
)
@click.option(
    "--min-p",
    type=float,
    default=0.0,
    show_default=True,
    help="Sample from the tokens with at least this probability, relative to the largest.",
)
@click.option("--repetition-penalty", type=float, default=1.0, show_default=True, help="Divides logits of earlier tokens.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random draws.")
@language_model_options
@click.option("--ignore-end", is_flag=True, help="Continue after a token that ends the text, to measure speed.")
@target_option
@click.option("--threads", "--num-threads", "num_threads", type=click.IntRange(1), help="Number of threads (default: all).")
@compile_options("cache")
@json_option
@reports_errors
def generate_command(
    model: Path,
    prompt: str,
    chat: bool,
    max_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    seed: int,
    context: int | None,
    draft_tokens: int,
    draft_model: Path | None,
    cache_dtype: str,
    activation_bits: str,
    ignore_end: bool,
    target: str,
    num_threads: int | None,
    as_json: bool,
    compile_settings: dict[str, Any],
) -> None:
    """Continues a prompt with a language model.

    MODEL is a GGUF file, or a folder with config.json and safetensors files. Text is printed as it is generated; the speed is
    printed to standard error. With --json, one object is printed: text, tokens, tokens_per_s, prompt_tokens_per_s.
    """
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
    text = sys.stdin.read() if prompt == "-" else prompt
    with progress_display() as progress:
        settings: dict[str, Any] = {"target": target, "context": context, "num_threads": num_threads, **compile_settings}
        settings |= {"cache_dtype": cache_dtype, "activation_bits": int(activation_bits)}
        settings |= {"progress": partial(_report, progress)}
        loaded = LanguageModel.load(model, draft_tokens=draft_tokens, **settings)
        drafter_model = None if draft_model is None else LanguageModel.load(draft_model, **settings)
        ids = prompt_ids(loaded, [{"role": "user", "content": text}] if chat else text)
    pieces = stream(loaded, ids, max_tokens, sampling, ignore_end=ignore_end, draft_model=drafter_model)
    if as_json:
        click.echo(json.dumps(asdict(finish(pieces, lambda piece: None))))
        return
    result = finish(pieces, lambda piece: click.echo(piece, nl=False))
    click.echo()
    speed = f"{len(ids)} tokens read at {result.prompt_tokens_per_s:.1f} tokens/s, "
    speed += f"{len(result.tokens)} generated at {result.tokens_per_s:.1f} tokens/s"
    click.secho(speed, err=True, dim=True)


def _report(progress: Progress | None, step: str) -> None:
    if progress is not None:
        progress(ProgressEvent(step))
