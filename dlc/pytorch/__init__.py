"""PyTorch frontend: exported programs and graphs of torch.compile become dlc programs.

    model = dlc.from_torch(module, (x,))            export a module and compile it
    model = dlc.compile_model("m.pt2")              compile a file of torch.export.save
    fast = torch.compile(module, backend="dlc")     compile the calls of a module, and their gradients

In each case torch provides an FX graph of ATen ops. `fx_conversion` converts it to plain data (`fx_graph`); `interpreter` runs
this graph on traced arrays, each operator by a rule of a few lines written with `dlc.numpy` (`rules`). `exported_programs` and
`backend` are the entry points. Only `fx_conversion`, `exported_programs` and `backend` import torch, and only when they are
needed: everything else works without torch.
"""
