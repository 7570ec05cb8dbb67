"""ATen operators without a rule or a decomposition: `python -m tests.pytorch.unsupported_operators`, where torch is installed.

docs/pytorch.md lists them. Operators that do not occur in graphs of dense CPU arrays are left out: in-place operators, sparse
arrays, other devices, libraries and backends, and views and scalars for internal use of PyTorch.
"""

from __future__ import annotations

import re

import torch

from dlc.pytorch.fx_conversion import decompositions, has_rule, operator_name

_ELSEWHERE = re.compile(
    r"cudnn|miopen|mkldnn|_mps|mps_|sparse|csr|_cs[lr]|coo|nested|jagged|padded|quantiz|qscheme|q_|int_repr|_foreach|_fused|_amp_|"
    r"triton|_philox|_test_|_copy$|\.generator|_generator|indices$|values$|_dim$|^_?dim[IV]$|^_n?nz$|int[48]pack|_dyn_quant|"
    r"overrideable|_cuda|_efficient|_flash_attention|_dual|_fw_primal|_lazy|_dep_token|storage|same_size|is_|_print|"
    r"_validate|^set\b|^set\.|resize|from_file|_foobar|_pin_memory|_reshape_alias|_neg_view|_conj_copy|_copy_from|hspmm|"
    r"batch_norm_(stats|elemt|gather|update|backward)|_empty|_indices|_values|coalesce|_slow|slow_conv|_nnpack|conv_depthwise"
)


def unsupported_nodes() -> list[str]:
    """Return the names in order."""
    known, found = decompositions(), list[str]()
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        function = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None) if namespace == "aten" else None
        if function is None or function in known or function._schema.is_mutable:
            continue
        own = operator_name(function)
        is_made_of_others = function.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        if not (has_rule(own) or is_made_of_others or _ELSEWHERE.search(own)) and not own.endswith(("_", "out")):
            found.append(own)
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(unsupported_nodes()))
