"""Recognize files of other formats that are passed as ONNX models, and suggest a remedy."""

from __future__ import annotations

# (offset, magic bytes, description and remedy)
_MAGIC_BYTES: tuple[tuple[int, tuple[bytes, ...], str], ...] = (
    (4, (b"TFL3",), "a TFLite model; rename it to *.tflite for compile, run, check and explore"),
    (0, (b"dlcmodel",), "a compiled model; rename it to *.dlc for run and bench, and use the ONNX model for other commands"),
    (0, (b"PK\x03\x04",), "a zip archive; rename an archive of torch.export.save to *.pt2"),
    (0, (b"builtin.module", b"module", b'"builtin.module"'), "a module as text; rename it to *.mlir"),
    (0, (b"version https://git-lfs",), "a Git LFS pointer; fetch the model with `git lfs pull`"),
    (0, (b"\x89HDF",), "an HDF5 file, as Keras writes; export the model as ONNX or TFLite"),
    (8, (b'{"',), "weights without a graph (safetensors); export the model instead"),
    (0, (b"\x93NUMPY",), "a NumPy array"),
    (0, (b"<!DOCTYPE", b"<!doctype", b"<html", b"<?xml"), "an HTML page or XML; download the file itself, not its web page"),
)


def describe_format(data: bytes) -> str | None:
    """Return "but", the format of a file that is not an ONNX model, and a remedy; None if the format is unknown."""
    matching_formats = (text for offset, prefixes, text in _MAGIC_BYTES if data.startswith(prefixes, offset))
    return next((f"but {text}" for text in matching_formats), None)
