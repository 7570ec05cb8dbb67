"""Post-training quantization of ONNX models to int8 (docs/quantization.md).

In the order in which to read it:

post_training.py          from a file to a report
settings.py               the settings
graph.py                  the model as a rewritable graph
preparation.py            upgrades the opset, folds constants and BatchNormalization
layer_selection.py        the layers and tensors to quantize
calibration_data.py       sets of inputs
calibration.py            runs the float model on them
channel_equalization.py   SmoothQuant
histogram.py              counts of the values of a tensor
moments.py                moments of the inputs of a layer, for GPTQ
ranges.py                 scales and zero points of activations
weights.py                int8 weights, GPTQ
sensitivity.py            the error of each layer quantized alone
output_error.py           the error of the outputs of a model
qdq_model.py              the quantized model, with QuantizeLinear and DequantizeLinear
dynamic_quantization.py   the model with dynamic quantization
report.py                 the result
"""
