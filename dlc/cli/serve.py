"""`dlc serve`: serve models over HTTP."""

from __future__ import annotations

import logging
import re
import secrets
from functools import partial
from pathlib import Path
from typing import Any

import click

from dlc.cli.common import ARTIFACT_SUFFIX, NonNanFloatRange, examples, fail, reports_errors, target_option
from dlc.cli.compile_options import compile_options
from dlc.cli.console import err
from dlc.cli.language_model_options import language_model_options
from dlc.cli.shape_options import Shapes, shape_option
from dlc.errors import UnsupportedError
from dlc.language_models.embedding_model import EmbeddingModel, is_encoder
from dlc.language_models.language_model import LanguageModel
from dlc.models.model_files import compile_file
from dlc.options import MAX_THREADS, Environment, Options
from dlc.runtime.load import load
from dlc.runtime.models.model import Model
from dlc.runtime.requests.batched_model import BatchedModel, batched

# The tokens of the Authorization header (RFC 6750).
_TOKEN_PATTERN = "[A-Za-z0-9._~+/-]+=*"
# Time in which requests may end after SIGTERM or Ctrl-C.
_SHUTDOWN_SECONDS = 30


@click.command(
    "serve",
    epilog=examples(
        "dlc serve model.dlc",
        "dlc serve --models folder --port 8080 --streams 2",
        "dlc serve model.onnx --shape x=N:1..64,32 --max-batch 32",
        "dlc serve model.gguf --streams 4",
    ),
)
@click.argument("models", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--models",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Serve all models in this folder; a file that is replaced by renaming another over it is reloaded.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0: all interfaces.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="The port; 0: any free one.")
@click.option("--token", help="The token that clients must send; default: DLC_TOKEN, or a random one, which is printed.")
@click.option("--no-token", is_flag=True, help="Serve clients without a token.")
@target_option
@shape_option
@click.option(
    "--streams",
    type=click.IntRange(1, MAX_THREADS),
    default=1,
    show_default=True,
    help="Number of calls of a model, or texts of a language model, that run at once.",
)
@click.option(
    "--max-batch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Join concurrent requests into batches of up to this many rows.",
)
@click.option(
    "--max-delay-ms",
    type=NonNanFloatRange(0),
    default=0.0,
    show_default=True,
    help="Maximum time that a request waits for others to join its batch.",
)
@click.option(
    "--max-pending",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Maximum number of waiting requests; further ones get status 429.",
)
@click.option(
    "--max-request-mb",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Maximum size of a request; larger ones get status 413.",
)
@language_model_options
@click.option(
    "--deadline-ms",
    type=NonNanFloatRange(0, min_open=True),
    help="Maximum time until a request starts; later ones get status 504.",
)
@compile_options("num_threads", "cpus", "inter_op", "cache")
@reports_errors
def serve_command(
    models: tuple[Path, ...],
    folder: Path | None,
    host: str,
    port: int,
    token: str | None,
    no_token: bool,
    target: str,
    shapes: Shapes,
    streams: int,
    max_batch: int,
    max_delay_ms: float,
    max_pending: int,
    max_request_mb: int,
    context: int | None,
    cache_dtype: str,
    activation_bits: str,
    draft_tokens: int,
    draft_model: Path | None,
    deadline_ms: float | None,
    compile_settings: dict[str, Any],
) -> None:
    """Serves models over HTTP: KServe v2 protocol, OpenAI's API.

    The name of a model is that of its file without the suffix. Models take requests at /v2/models/NAME/infer, as JSON or with
    binary tensors. Language models (a GGUF file, or a folder with config.json) take them at /v1/chat/completions and
    /v1/completions, encoders (a folder with config.json) at /v1/embeddings. Use /v2/health/ready and /metrics for monitoring.

    By default, the server listens on this machine only, and clients must send a token. SIGTERM and Ctrl-C end it when the
    requests in progress have ended.
    """
    if not models and folder is None:
        raise click.UsageError("expected a model or --models FOLDER")
    if no_token and token:
        raise click.UsageError("--token and --no-token exclude each other: remove one of them")
    try:
        # Optional packages.
        import uvicorn

        from dlc.serve.application import ModelQueues, ServerLimits, application
        from dlc.serve.embeddings import EmbeddingQueue
        from dlc.serve.text_queue import TextQueue
    except ImportError as error:
        fail(f"{error}; install the packages of the server: pip install 'dlc[serve]'")
    from dlc.serve.metrics import Metrics
    from dlc.serve.repository import Repository, require_distinct_names

    logging.basicConfig(format="%(message)s")
    logging.getLogger("dlc.serve").setLevel(logging.INFO)
    options = Options.of(**compile_settings, streams=streams)
    read = partial(_load, target=target, shapes=shapes, options=options)
    limits = ServerLimits(max_pending, max_request_mb << 20, None if deadline_ms is None else deadline_ms / 1e3)
    require_distinct_names([*models])
    language_models = [path for path in models if path.is_dir() or path.suffix == ".gguf"]
    encoders = {
        path.stem: EmbeddingQueue(EmbeddingModel.load(path, target=target, **compile_settings), max_pending)
        for path in language_models
        if is_encoder(path)
    }
    text_settings: dict[str, Any] = {"context": context, "cache_dtype": cache_dtype, "activation_bits": int(activation_bits)}
    text_settings |= {"target": target, **compile_settings}
    drafting = None if draft_model is None else LanguageModel.load(draft_model, **text_settings)
    texts = {
        path.stem: TextQueue(
            LanguageModel.load(path, max_texts=streams, draft_tokens=draft_tokens, **text_settings), max_pending, drafting
        )
        for path in language_models
        if path.stem not in encoders
    }
    queues = ModelQueues(texts, encoders)
    secret = None if no_token else token or Environment.read().token or secrets.token_urlsafe(24)
    if secret is not None and not re.fullmatch(_TOKEN_PATTERN, secret):
        raise click.UsageError("the token of --token or DLC_TOKEN: expected letters, digits and the characters -._~+/=")
    metrics = Metrics()

    def load_model(path: Path) -> Model | BatchedModel:
        model = read(path)
        return (
            batched(model, max_batch=max_batch, max_delay_ms=max_delay_ms, max_pending=max_pending) if max_batch > 1 else model
        )

    def count(name: str, result: str) -> None:
        metrics.reloads[name, result] += 1

    repository = Repository([path for path in models if path not in language_models], folder, load_model, count)
    repository.open()
    if secret is not None and not token and not Environment.read().token:
        err.print(f"token: {secret}", markup=False)
    config = uvicorn.Config(
        application(repository, metrics, secret, limits, queues),
        host=host,
        port=port,
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    # Bound here, so that the message has the port that the system chose, and clients can connect when they read it.
    socket = config.bind_socket()
    socket.listen(config.backlog)
    err.print(
        f"serving {', '.join(sorted([*repository.models, *queues.all])) or 'no models yet'} at http://{host}:{socket.getsockname()[1]}",
        markup=False,
    )
    server.run(sockets=[socket])


def _load(path: Path, target: str, shapes: Shapes, options: Options) -> Model:
    if path.suffix == ARTIFACT_SUFFIX:
        if shapes:
            raise UnsupportedError(f"{path}: it is compiled already: --shape applies to ONNX and TFLite models")
        return load(path, name=path.stem, num_threads=options.num_threads, streams=options.streams, cpus=options.cpus)
    return compile_file(path, target, shapes, options)
