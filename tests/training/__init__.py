"""Derivatives and training steps of ONNX models."""
