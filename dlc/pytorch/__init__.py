"""PyTorch: modules and graphs of its compiler become programs.

    model = dlc.from_torch(module, (x,))            a module, exported and compiled
    model = dlc.compile_model("m.pt2")              what torch.export.save wrote
    fast = torch.compile(module, backend="dlc")     one call of a module after another, and its training

Either way torch hands over a graph of ATen operators, which `reading` makes plain data of (`graph`). `interpreter` runs that
graph on traced arrays, each operator by a rule of a few lines that is written with `dlc.numpy` (`rules`). `exported` and
`backend` are what people call. torch is imported by `reading`, `exported` and `backend` alone, which are imported when they are
asked for: the rest works without it.
"""
