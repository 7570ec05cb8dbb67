"""Recognize files of other formats that are passed as ONNX models, and suggest a remedy."""

from __future__ import annotations

# (offset, magic bytes, description and remedy)
_MAGIC_BYTES: tuple[tuple[int, tuple[bytes, ...], str], ...] = (
    (4, (b"TFL3",), "a TFLite model; compile, run, check and explore take it, by a name that ends in .tflite"),
    (0, (b"dlcmodel",), "a compiled model; run and bench take it, by a name that ends in .dlc, all else the ONNX model"),
    (0, (b"PK\x03\x04",), "a zip archive; what torch.export.save wrote is taken by a name that ends in .pt2"),
    (0, (b"builtin.module", b"module", b'"builtin.module"'), "the text of a module; name it so that it ends in .mlir"),
    (0, (b"version https://git-lfs",), "a pointer of Git LFS; `git lfs pull` fetches the model itself"),
    (0, (b"\x89HDF",), "an HDF5 file, as Keras writes; export the model as ONNX or TFLite"),
    (8, (b'{"',), "weights without a graph (safetensors); export the model that they belong to"),
    (0, (b"\x93NUMPY",), "an array of NumPy"),
    (0, (b"<!DOCTYPE", b"<!doctype", b"<html", b"<?xml"), "a page or XML; was it downloaded by the address of its page?"),
)


def describe_format(data: bytes) -> str | None:
    """Return the format of a file that is not an ONNX model, and a remedy; None if it is unknown."""
    found = (what for after, beginnings, what in _MAGIC_BYTES if data.startswith(beginnings, after))
    return next((f"which is needed here, but {what}" for what in found), None)
