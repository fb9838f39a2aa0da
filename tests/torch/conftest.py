"""One thread, also in processes that tests start: the models are tiny, and several processes test at once."""

import os
from importlib.util import find_spec

os.environ.setdefault("OMP_NUM_THREADS", "1")

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
