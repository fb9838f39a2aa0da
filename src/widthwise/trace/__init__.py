"""Trace the forward pass of a JAX model and find out how its parameters are used."""

from widthwise.trace.forward import Trace as Trace
from widthwise.trace.forward import trace as trace
