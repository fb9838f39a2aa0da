"""The front door for PyTorch: plan how any module changes with its width, in one call. Imports no JAX."""

from importlib.util import find_spec

if find_spec("torch") is None:
    message = "widthwise.torch needs torch, which is not installed: pip install 'widthwise[torch]'"
    raise ModuleNotFoundError(message, name="torch")

from widthwise.search import sweep as sweep
from widthwise.torch.optimizers import Adafactor as Adafactor
from widthwise.torch.optimizers import AdamAtan2 as AdamAtan2
from widthwise.torch.plan import TorchPlan as TorchPlan
from widthwise.torch.plan import plan as plan
