"""One thread: the models are tiny, and several processes test at once."""

from importlib.util import find_spec

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
