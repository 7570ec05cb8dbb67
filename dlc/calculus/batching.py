def vmap(*a, **k):
    raise NotImplementedError
