"""Post-training quantization of ONNX models to int8 (docs/quantization.md).

Read in this order: `post_training.py` (the whole process, from a file to a report), `settings.py` (the settings), `graph.py`
and `preparation.py` (the model as a rewritable graph), `layer_selection.py` (which nodes are layers, which tensors are
quantized), `calibration_data.py` and `calibration.py` (the float model runs on calibration data), `channel_equalization.py`
(SmoothQuant), `histogram.py` and `moments.py` (the statistics of a run), `ranges.py` (scales and zero points of activations),
`weights.py` (int8 weights, GPTQ), `sensitivity.py` and `output_error.py` (the error of each layer; which layers stay in float),
`qdq_model.py` and `dynamic_quantization.py` (the quantized model), `report.py`.
"""
