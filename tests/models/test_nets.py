"""Small networks written as code: the `cpu` target compared with the evaluator of the imported module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from dlc.compiler import Program, compile
from dlc.frontend.onnx import import_model
from tests.frontend.onnx.build import run
from tests.models import nets
from tests.models.skeletons import TOLERANCE, deviation, inputs

SMALL: Mapping[str, tuple[Callable[..., ModelProto], Mapping[str, Any]]] = {
    "whisper_encoder": (nets.whisper_encoder, {"frames": 42, "width": 24, "heads": 2, "layers": 1}),
    "audio_turns": (nets.audio_turns, {"frames": 42, "width": 24, "heads": 2, "layers": 1}),
    "encoder_1024": (nets.encoder_1024, {"length": 33, "width": 24, "heads": 3, "layers": 1}),
    "ocr_detector": (nets.ocr_detector, {"size": 64, "width": 4}),
    "ocr_detector_mobile": (nets.ocr_detector_mobile, {"size": 64, "width": 16}),
    "speech_quality": (nets.speech_quality, {"frames": 45, "bands": 24, "width": 4}),
    "unet": (nets.unet, {"size": 32, "width": 4, "depth": 2}),
    "densenet121": (nets.densenet121, {"size": 64, "blocks": (2, 2)}),
    "vgg16": (nets.vgg16, {"size": 32, "width": 4, "hidden": 16}),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_net(name: str) -> None:
    net, sizes = SMALL[name]
    model = net(**sizes)
    feeds, imported = inputs(name, model), import_model(model)
    expected = run(imported, feeds)
    got = compile(Program(imported.module, imported.weights, name))(feeds)
    assert list(got) == list(expected)
    far = {n: d for n, array in expected.items() if (d := deviation(np.asarray(got[n]), array)) > TOLERANCE}
    assert not far, f"outputs that are not what the evaluator gives: {far}"


def test_every_net_is_tested() -> None:
    assert set(SMALL) == set(nets.NETS)
