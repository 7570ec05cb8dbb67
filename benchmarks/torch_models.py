"""Compare models of torchvision and transformers with PyTorch: results of `dlc.from_torch`, and speed of `torch.compile`.

    python benchmarks/torch_models.py [--match NAMES | --speed NAMES | --training]

Models have random weights; everything runs on one thread; nothing is downloaded. --match compares results, --speed compares
`torch.compile` with dlc, Inductor and eager mode, --training compares losses. Without an option all three run. Needs torch,
torchvision and transformers, and a C++ compiler for Inductor.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from optional_imports import optional_imports

import dlc

with optional_imports(__doc__):
    import torch
    import transformers as tf
    from torch import nn

    from dlc.pytorch.backend import dlc as backend

# torchvision's compiled operators require the build of torch they were compiled for. The models do not need the operators.
try:
    import torchvision.models as tv
except RuntimeError:
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision.models as tv

SMALL = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
IMAGES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 64}
SPEECH = {
    "vocab_size": 100, "d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 16, "max_source_positions": 50,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip


def image(size: int = 64) -> dict[str, Any]:
    return {"x": torch.randn(1, 3, size, size)}


def pixels() -> dict[str, Any]:
    return {"pixel_values": torch.randn(1, 3, 64, 64)}


def tokens(length: int = 16, count: int = 90) -> dict[str, Any]:
    return {"input_ids": torch.randint(0, count, (1, length)), "attention_mask": torch.ones(1, length, dtype=torch.int64)}


# The constructor of a module, and a function that returns the arguments of a call.
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "resnet18": (tv.resnet18, image),
    "mobilenet_v2": (tv.mobilenet_v2, image),
    "mobilenet_v3_small": (tv.mobilenet_v3_small, image),
    "squeezenet1_1": (tv.squeezenet1_1, image),
    "shufflenet_v2": (tv.shufflenet_v2_x0_5, image),
    "efficientnet_b0": (tv.efficientnet_b0, image),
    "densenet121": (tv.densenet121, image),
    "googlenet": (lambda: tv.googlenet(init_weights=False), image),
    "regnet_y_400mf": (tv.regnet_y_400mf, image),
    "mnasnet0_5": (tv.mnasnet0_5, image),
    "convnext_tiny": (tv.convnext_tiny, image),
    "vgg11": (tv.vgg11, image),
    "swin": (lambda: tv.SwinTransformer([4, 4], 32, [2, 2], [2, 4], [7, 7]), image),
    "lraspp": (lambda: tv.segmentation.lraspp_mobilenet_v3_large(weights_backbone=None), lambda: {"input": image()["x"]}),
    "vit": (lambda: tf.ViTModel(tf.ViTConfig(**IMAGES, patch_size=16)), pixels),
    "segformer": (
        lambda: tf.SegformerModel(tf.SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 32, 32])),
        pixels,
    ),
    "bert": (lambda: tf.BertModel(tf.BertConfig(**SMALL)), tokens),
    "distilbert": (
        lambda: tf.DistilBertModel(tf.DistilBertConfig(vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64)),
        tokens,
    ),
    "gpt2": (
        lambda: tf.GPT2Model(
            tf.GPT2Config(vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False,
                          bos_token_id=1, eos_token_id=2)
        ),
        tokens,
    ),
    "llama": (lambda: tf.LlamaModel(tf.LlamaConfig(**SMALL, num_key_value_heads=2, use_cache=False)), tokens),
    "t5": (
        lambda: tf.T5EncoderModel(tf.T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)),
        tokens,
    ),
    "whisper": (
        lambda: tf.WhisperModel(tf.WhisperConfig(**SPEECH)).encoder,
        lambda: {"input_features": torch.randn(1, 16, 100)},
    ),
    "lstm": (lambda: nn.LSTM(8, 16, batch_first=True), lambda: {"input": torch.randn(2, 5, 8)}),
}  # fmt: skip


class Block(nn.Module):
    """A GPT block."""

    def __init__(self, width: int = 384, heads: int = 6) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        projections = self.qkv(self.attention_norm(x)).split(width, 2)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in projections)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


BERT = {**SMALL, "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 1024}
MEASURED: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "resnet18": (tv.resnet18, lambda: image(224)),
    "bert": (lambda: tf.BertModel(tf.BertConfig(**{**BERT, "max_position_embeddings": 128})), lambda: tokens(128, 900)),
    "gpt block": (Block, lambda: {"x": torch.randn(1, 256, 384)}),
}


def prepare_module(module: Any) -> Any:
    """Put a module in evaluation mode, and replace all-zero parameters, which would hide errors, by random ones."""
    for parameter in module.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    return module.eval()


def match(names: list[str]) -> None:
    """Print the difference of each model from PyTorch, relative to its largest output."""
    num_matching = 0
    for name in names:
        torch.manual_seed(0)
        make, arguments = MODELS[name]
        try:
            module, arguments_of_call = prepare_module(make()), arguments()
            start = time.perf_counter()
            model = dlc.from_torch(module, (), arguments_of_call)
            seconds = time.perf_counter() - start
            with torch.no_grad():
                leaves = torch.utils._pytree.tree_leaves(module(**arguments_of_call))
            expected = [leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]
            outputs = [np.asarray(a) for a in model(*(arguments_of_call[i.name] for i in model.inputs)).values()]
            difference = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(outputs, expected, strict=True))
            num_matching += difference < 1e-4
            print(f"{name:20} difference {difference:.1e}, exported and compiled in {seconds:.1f} s", flush=True)
        except dlc.DlcError as error:
            print(f"{name:20} {type(error).__name__}: {error}", flush=True)
    print(f"{num_matching} of {len(names)} match")


def measure(names: list[str]) -> None:
    """Print the milliseconds of a call of each model: interleaved; medians of the fastest of three."""
    for name in names:
        torch.manual_seed(0)
        make, arguments = MEASURED[name]
        module, arguments_of_call = prepare_module(make()), arguments()
        runs = {
            "eager": module,
            "dlc": torch.compile(copy.deepcopy(module), backend=backend, options={"num_threads": 1}),
            "inductor": torch.compile(copy.deepcopy(module)),
            "inductor, frozen": torch.compile(copy.deepcopy(module), options={"freezing": True}),
        }
        times: dict[str, list[float]] = {runtime: [] for runtime in runs}
        with torch.no_grad():
            for run in runs.values():
                run(**arguments_of_call)
            for _ in range(15):
                for runtime, run in runs.items():
                    times[runtime].append(min(_seconds(run, arguments_of_call) for _ in range(3)))
        medians = {runtime: statistics.median(samples) * 1e3 for runtime, samples in times.items()}
        print(f"{name:12}" + ", ".join(f"{runtime} {ms:.2f} ms" for runtime, ms in medians.items()), flush=True)


def _seconds(run: Any, arguments_of_call: dict[str, Any]) -> float:
    start = time.perf_counter()
    run(**arguments_of_call)
    return time.perf_counter() - start


def train() -> None:
    """Print the largest difference of the losses of dlc and PyTorch over 100 steps of a small transformer."""

    def losses(compiled: bool) -> Any:
        torch.manual_seed(0)
        module = nn.Sequential(Block(32, 4), Block(32, 4), nn.Linear(32, 10))
        run = torch.compile(module, backend=backend) if compiled else module
        optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
        x, y = torch.randn(8, 16, 32), torch.randint(0, 10, (8, 16))
        samples: list[float] = []
        for _ in range(100):
            loss = nn.functional.cross_entropy(run(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            samples.append(loss.item())
        return np.array(samples)

    dlc_losses, torch_losses = losses(True), losses(False)
    difference = np.abs(dlc_losses - torch_losses).max()
    print(f"losses of 100 steps, from {torch_losses[0]:.3f} to {torch_losses[-1]:.3f}: largest difference {difference:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--match", nargs="*", metavar="NAME", choices=[*MODELS, []], help="compare results of these models (default: all)"
    )
    parser.add_argument(
        "--speed", nargs="*", metavar="NAME", choices=[*MEASURED, []], help="measure these models (default: all)"
    )
    parser.add_argument("--training", action="store_true", help="compare the losses of training steps")
    arguments = parser.parse_args()
    run_all = arguments.match is None and arguments.speed is None and not arguments.training
    torch.set_num_threads(1)
    if run_all or arguments.match is not None:
        match(arguments.match or list(MODELS))
    if run_all or arguments.speed is not None:
        measure(arguments.speed or list(MEASURED))
    if run_all or arguments.training:
        train()


if __name__ == "__main__":
    main()
