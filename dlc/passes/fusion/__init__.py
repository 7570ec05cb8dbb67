"""Kernel fusion: form kernels from ops, and assign the layouts of the tensors between them.

form_kernels.py         the main pass
candidates.py           the ops that may belong in a kernel
fusion_groups.py        chooses the ops of a kernel, by iteration_spaces.py, producers.py and attention_patterns.py
fusion_refusals.py      reasons why a kernel does not contain more ops
outline.py              moves ops into a kernel, with symbols of its own (kernel_sizes.py)
kernel_table.py         inserts and clones kernels by name
merge_kernels.py        merges elementwise kernels
prepare_attention.py    prepares attention kernels, also by query_vectorization.py and masks_by_position.py
find_zeros.py           finds operands with blocks of zeros, which masks leave
dispatch_arguments.py   the arguments of a kernel with a single dispatch
pack_arguments.py       packs arguments in the order in which register tiles read them
assign_layouts.py       packs weights into panels (panel_width.py)
reuse_donated.py        writes results into the buffers of donated arguments; update_in_place.py: of states of loops
share_literals.py       passes literals as arguments; dedupe_kernels.py then merges equal kernels
"""
