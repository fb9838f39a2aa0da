"""Widthwise: what was tuned on a narrow network, made to hold on a wide one."""

__version__ = "0.1.0"
