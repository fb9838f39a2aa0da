"""The front door for PyTorch: plan how any module changes with its width, in one call. Imports no JAX."""

from widthwise.torch.optimizers import Adafactor as Adafactor
from widthwise.torch.optimizers import AdamAtan2 as AdamAtan2
from widthwise.torch.plan import TorchPlan as TorchPlan
from widthwise.torch.plan import plan as plan
