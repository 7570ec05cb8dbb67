"""Small models on a device, with its own and other profiles, compared with recorded results of ONNX Runtime."""

from __future__ import annotations

import pytest

import dlc
from dlc.runtime.opencl.devices import all_devices
from tests.models.skeletons import path_of, recordings
from tests.models.test_models import agree

pytestmark = pytest.mark.skipif(not all_devices(), reason="no OpenCL device")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("mnist_cnn", "opencl"),
        ("mnist_cnn", "opencl:gpu"),
        ("mnist_cnn", "opencl:small"),
        ("mnist_cnn_int8_qdq", "opencl"),
        ("gpt2_tiny_decode_kv_dyn", "opencl"),
    ],
)
def test_model(name: str, target: str) -> None:
    model = dlc.compile_model(path_of(name), target=target)
    for feeds, expected in recordings(name):
        agree(name, target, model(feeds), expected)
