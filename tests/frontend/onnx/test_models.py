"""Real models, imported and run by the reference evaluator, against recorded results of ONNX Runtime."""

from __future__ import annotations

import pytest

from dlc.frontend.onnx import check_model, import_model
from tests.frontend.onnx.build import run
from tests.models import skeletons
from tests.models.skeletons import deviation, filled, inputs, path_of, recorded, recordings, sampled

TOLERANCE = 1e-4
# Tolerances of tensors with larger rounding errors, with the error of the recording against an f64 evaluation.
ILL_CONDITIONED = {
    "basic_pitch": 2.5e-3,  # logarithms of sums that cancel: ONNX Runtime is 2e-3 away from the recording, which is exact
    "efficientnet_b0/val_559": 1e-2,  # sigmoid of numbers around 10,000: the recording is 4e-4 away
}


@pytest.mark.parametrize(
    "name",
    [
        "magika_v3_3", "basic_pitch", "blazeface_front", "ppocr_v2_cls", "mnist_cnn", "mnist_cnn_int8_qdq",
        "llama_tiny_prefill_16", "gpt2_tiny_decode_kv_dyn", "silero_vad_16k_op15", "gru_stream", "lstm_tagger", "scan_rnn",
        "loop_if_script",
    ],
)  # fmt: skip
def test_model(name: str) -> None:
    path = path_of(name)
    for feeds, expected in recordings(name):
        imported = import_model(path, {n: a.shape for n, a in feeds.items()})
        got = run(imported, feeds)
        assert set(got) == set(expected)
        for output, array in expected.items():
            assert got[output].shape == array.shape
            assert got[output].dtype == array.dtype
            assert deviation(got[output], array) <= ILL_CONDITIONED.get(name, TOLERANCE), output


@pytest.mark.parametrize(
    "name",
    [
        "resnet18", "resnet18_dynbatch", "resnet50", "mobilenet_v2", "efficientnet_b0", "squeezenet1_1", "bert_base_128",
        "vit_b16", "gpt2_decode_kv",
    ],
)  # fmt: skip
def test_skeleton(name: str) -> None:
    model = filled(name)
    outputs, inner = recorded(name)
    feeds = inputs(name, model)
    imported = import_model(model, {n: a.shape for n, a in feeds.items()}, extra_outputs=list(inner))
    got = run(imported, feeds)
    for tensor, array in (outputs | inner).items():
        worst = deviation(sampled(got[tensor]), array)
        assert worst <= ILL_CONDITIONED.get(f"{name}/{tensor}", TOLERANCE), f"{tensor}: {worst}"


@pytest.mark.parametrize("name", ["magika_v3_3", "basic_pitch", "ppocr_v2_cls", "gpt2_tiny_decode_kv_dyn"])
def test_symbolic_sizes_stay_symbolic(name: str) -> None:
    imported = import_model(path_of(name))
    imported.module.verify()
    symbols = {str(s) for i in imported.inputs for s in i.shape if not isinstance(s, int)}
    assert symbols
    for output in imported.outputs:
        assert all(isinstance(s, int) or s.symbols() <= symbols for s in output.shape)


def test_a_branch_that_depends_on_symbolic_sizes_is_reported() -> None:
    (found,) = check_model(path_of("silero_vad_16k_op15"))
    assert "'/model/decoder/If' (If): value: result 0 is" in str(found)


def test_sampling_steps_are_odd() -> None:
    import numpy as np

    assert skeletons.sampled(np.arange(4096)).tolist()[:3] == [0, 5, 10]
    assert skeletons.sampled(np.arange(100)).size == 100
