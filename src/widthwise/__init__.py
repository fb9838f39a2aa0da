"""Widthwise: tune a narrow network, train a wide one with what you found.

This module re-exports what most users need. Everything that needs a framework is imported on first use, so that
`import widthwise` stays light, and an extra that is not installed is missed only where it is needed.
"""

import importlib
from typing import TYPE_CHECKING, Any

from widthwise.theory import ADAFACTOR as ADAFACTOR
from widthwise.theory import ADAM as ADAM
from widthwise.theory import FULL as FULL
from widthwise.theory import MEAN_FIELD as MEAN_FIELD
from widthwise.theory import MUP as MUP
from widthwise.theory import NONE as NONE
from widthwise.theory import NTK as NTK
from widthwise.theory import SGD as SGD
from widthwise.theory import STANDARD as STANDARD
from widthwise.theory import TENSOR_PROGRAMS as TENSOR_PROGRAMS
from widthwise.theory import Alignment as Alignment
from widthwise.theory import AxisRule as AxisRule
from widthwise.theory import DecayRule as DecayRule
from widthwise.theory import DepthRule as DepthRule
from widthwise.theory import OptimizerFamily as OptimizerFamily
from widthwise.theory import Parameterization as Parameterization
from widthwise.theory import Role as Role
from widthwise.theory import check as check
from widthwise.theory import solve as solve

if TYPE_CHECKING:
    from widthwise import measure as measure
    from widthwise import models as models
    from widthwise import optim as optim
    from widthwise import torch as torch
    from widthwise.parameterize import Constants as Constants
    from widthwise.parameterize import Prescription as Prescription
    from widthwise.parameterize import Scales as Scales
    from widthwise.parameterize import equinox as equinox
    from widthwise.parameterize import explain as explain
    from widthwise.parameterize import flax as flax
    from widthwise.parameterize import prescribe as prescribe
    from widthwise.planning import Plan as Plan
    from widthwise.planning import plan as plan
    from widthwise.scaling import UNSCALED as UNSCALED
    from widthwise.scaling import Axes as Axes
    from widthwise.scaling import Rule as Rule
    from widthwise.search import Search as Search
    from widthwise.search import sweep as sweep

__version__ = "0.1.0"

_PACKAGES = ("measure", "models", "optim", "parameterize", "torch")
_FROM = {
    **dict.fromkeys(("Plan", "plan"), "planning"),
    **dict.fromkeys(("Search", "sweep"), "search"),
    **dict.fromkeys(("UNSCALED", "Axes", "Rule"), "scaling"),
    **dict.fromkeys(
        ("Constants", "Prescription", "Scales", "equinox", "explain", "flax", "prescribe"),
        "parameterize",
    ),
}
_EXTRAS = {"torch": "torch", **dict.fromkeys(("measure", "optim", "parameterize", "planning"), "jax")}
"""The extras that packages need; all others need `lab`."""


def __getattr__(name: str) -> Any:
    package = name if name in _PACKAGES else _FROM.get(name)
    if package is None:
        raise AttributeError(f"module 'widthwise' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"widthwise.{package}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("widthwise"):
            raise
        extra = _EXTRAS.get(package, "lab")
        message = f"widthwise.{name} needs {error.name}, which is not installed: pip install 'widthwise[{extra}]'"
        raise ModuleNotFoundError(message, name=error.name) from None
    return module if name in _PACKAGES else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *_FROM})
