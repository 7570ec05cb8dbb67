"""Attention, softmax(QKᵀ)·V, in fused loops on a CPU (`FusedAttention`).

`match_attention.py` finds the two contractions, `online_softmax.py` the ops of an online softmax, and proves that masked
scores get zero weight. `choose_attention.py` chooses a plan (`fused_attention.py`), with the fused loops of
`choose_fused_loops.py` or `choose_transposed_fused_loops.py`. `attention_tile_body.py` generates the code, with
`fused_loops.py`, `softmax_rescaling.py` and `prefetch_rows.py`.
"""
