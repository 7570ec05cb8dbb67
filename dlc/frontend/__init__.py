"""Programs of the `dl` dialect, made of files (`onnx/`, `tflite/`) and of functions (`traced.py`).

Other files are what several of them share.
"""
