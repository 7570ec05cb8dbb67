"""Frontends: build `dl` programs from model files (`onnx/`, `tflite/`) and from Python functions (`function_tracing.py`).

The other files are shared by several frontends.
"""
