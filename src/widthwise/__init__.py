"""Widthwise: what was tuned on a narrow network, made to hold on a wide one.

This module re-exports what most users need. It imports nothing outside the standard library.
"""

from widthwise.theory import Alignment as Alignment
from widthwise.theory import OptimizerFamily as OptimizerFamily
from widthwise.theory import Parameterization as Parameterization
from widthwise.theory import check as check
from widthwise.theory import solve as solve

__version__ = "0.1.0"
