"""Trace a forward pass: the uses of its parameters, and the numbers in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from widthwise.scaling import Traced, Use
from widthwise.scaling.found import Found, Value
from widthwise.trace.paths import PyTree, named_leaves
from widthwise.trace.walk import walk


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A traced forward pass.

    Attributes:
        found: What happens to parameters.
        jaxpr: The trace itself.
    """

    found: Found
    jaxpr: Any

    @property
    def uses(self) -> tuple[Use, ...]:
        """The uses of parameters, in the order of the forward pass."""
        return self.found.listed()

    def traced(self, shapes: Mapping[str, tuple[int, ...]]) -> Traced:
        """Return the uses of parameters of these shapes."""
        return Traced.of_walk(shapes, self.found)

    def of(self, path: str) -> tuple[Use, ...]:
        """Return the uses of one parameter."""
        return tuple(use for use in self.uses if use.path == path)


def trace(forward: Callable[..., Any], params: PyTree, *example: Any) -> Trace:
    """Trace a forward pass, without computing anything.

    Args:
        forward: A function of parameters and an example.
        params: The parameters, or only their shapes.
        example: The other arguments of the function, or only their shapes.

    >>> import jax.numpy as jnp
    >>> def forward(params, x): return jnp.tanh(x @ params["in"]) @ params["out"].T
    >>> params = {"in": jnp.ones((3, 8)), "out": jnp.ones((2, 8))}
    >>> [(use.path, use.axes.inputs, use.fan_in, use.inner) for use in trace(forward, params, jnp.ones((5, 3))).uses]
    [('in', (0,), 3, True), ('out', (1,), 8, False)]
    """
    named = named_leaves(params)
    jaxpr = jax.make_jaxpr(forward)(params, *example).jaxpr
    found = walk(jaxpr, [Value.of_parameter(path, leaf.shape) for path, leaf in named.items()])
    return Trace(found=found, jaxpr=jaxpr)
