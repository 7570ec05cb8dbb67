"""Post-training quantisation: an ONNX model in floats becomes one of 8-bit integers (docs/quantization.md).

Read in this order: `quantizing.py` (all of it, from a file to a report), `settings.py` (what may be asked for), `graph.py`
and `preparing.py` (the model as it is rewritten), `placing.py` (which nodes are layers, which tensors become integers),
`samples.py` and `calibration.py` (the model runs in floats), `equalizing.py` (channels of small values), `histogram.py` and
`moments.py` (what is remembered of a run), `ranges.py` (scales of data), `weights.py` (integers of weights), `sensitivity.py`
(what each layer costs, and `difference.py` how that is measured; which ones stay in floats), `rewriting.py` and `dynamic.py`
(the model that is written), `report.py`.
"""
