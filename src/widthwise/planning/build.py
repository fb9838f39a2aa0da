"""Read a user's model, whatever it is: a tree of parameters, a function with it, or a module of a framework.

`build(width)`, `build(width, key)` or `build(width, *, key)` may return

- a pair of parameters and the function that applies them (Haiku, Linen, plain JAX),
- an NNX or Equinox module, or any other pytree that can be called,
- a Linen module, which is initialized with the example,
- parameters alone.

With a depth it is called in the same way, with `depth=` beside, and with a key that follows the depth by its name.

Models are built inside a trace wherever shapes are enough, so that a large one costs no memory.
"""

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from widthwise.trace.paths import PyTree, named_leaves

Build = Callable[..., Any]
"""A function of the width, or of the width and a random key, that returns a model."""


@dataclass(frozen=True, kw_only=True)
class OwnModel:
    """A model as parameters and functions of them.

    Attributes:
        params: The trainable arrays.
        rebuild: Returns the model, in the form in which it was built, with other parameters.
        callable: Returns the model with other parameters, as something that can be called, if it can be.
        apply: The forward pass, from parameters and an example; None if it is unknown.
        drawn_here: Whether the parameters were drawn with the key here, not by `build`.
    """

    params: PyTree
    rebuild: Callable[[PyTree], Any]
    callable: Callable[[PyTree], Any]
    apply: Callable[..., Any] | None
    drawn_here: bool = False


@dataclass(frozen=True, kw_only=True)
class Builder:
    """How to build and call a user's model.

    Attributes:
        build: The user's function.
        example: The arguments of the forward pass.
        call: The forward pass, from a model and the example; None to call the model itself.
        depth: The depth to build it with; None for a model that is not built with one.
        memory: What was computed once for all plans of the model.
    """

    build: Build
    example: tuple[Any, ...]
    call: Callable[..., Any] | None
    depth: int | None = None
    memory: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False, repr=False)

    def once(self, what: Any, compute: Callable[[], Any]) -> Any:
        """Return the result of a function that was called before, or call it."""
        what = (self.depth, what)
        if what not in self.memory:
            self.memory[what] = compute()
        return self.memory[what]

    def deep(self, depth: int | None) -> "Builder":
        """Return the same at another depth."""
        return replace(self, depth=depth)

    @property
    def _build(self) -> Build:
        return self.build if self.depth is None else functools.partial(self.build, depth=self.depth)

    @property
    def takes_key(self) -> bool:
        """Whether `build` takes a random key, by position or by name."""
        parameters = inspect.signature(self._build).parameters.values()
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        second = [parameter for parameter in parameters if parameter.kind in kinds][1:2]
        return (
            any(parameter.default is parameter.empty or parameter.name in ("key", "rng") for parameter in second)
            or any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
            or self._keyword is not None
        )

    @property
    def _keyword(self) -> str | None:
        """The name of a random key that must be passed by name: a keyword-only `key`, or an argument after `depth`."""
        parameters = inspect.signature(self._build).parameters.values()
        named = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        known = [parameter.name for parameter in named if parameter.name in ("key", "rng")]
        if self.depth is None:
            return "key" if "key" in known else None
        required = [parameter.name for parameter in named if parameter.default is parameter.empty]
        return next(iter(known or required), None)

    def at(self, width: int, key: jax.Array | None = None) -> OwnModel:
        """Build the model at a width."""
        key = jax.random.key(0) if key is None else key
        if self._keyword is not None:
            built = self._build(width, **{self._keyword: key})
        else:
            built = self._build(width, key) if self.takes_key else self._build(width)
        return self.read(built, key)

    def read(self, built: Any, key: jax.Array | None = None) -> OwnModel:
        """Read a model that was built, or the parameters of one."""
        rebuild: Callable[[PyTree], Any] = lambda params: params  # noqa: E731
        act = rebuild
        can_act = True
        if isinstance(built, tuple) and len(built) == 2 and callable(built[1]):
            params, function = built
            act = lambda params: functools.partial(function, params)  # noqa: E731
        elif _is_a(built, "flax.nnx", "Module"):
            from flax import nnx

            graph, params, rest = nnx.split(built, nnx.Param, ...)
            act = rebuild = lambda params: nnx.merge(graph, params, rest)
        elif _is_a(built, "flax.linen", "Module"):
            params, rest = self._linen(built, key)
            module: Any = built
            act = lambda params: functools.partial(module.apply, {"params": params, **rest})  # noqa: E731
        elif callable(built) and jax.tree.leaves(built):
            leaves, structure = jax.tree.flatten(built)
            params = structure.unflatten([leaf if _is_trained(leaf) else None for leaf in leaves])
            act = rebuild = lambda params: _filled(structure, params, leaves)
        else:
            params, can_act = built, self.call is not None
        named_leaves(params)  # names what is not a trainable array
        call = self.call or _call
        return OwnModel(
            params=params,
            rebuild=rebuild,
            callable=act,
            apply=(lambda params, *example: call(act(params), *example)) if can_act else None,
            drawn_here=_is_a(built, "flax.linen", "Module"),
        )

    def _linen(self, module: Any, key: jax.Array | None) -> tuple[PyTree, dict[str, Any]]:
        """Return the parameters of a Linen module, and its other variables."""
        if not self.example:
            raise ValueError("build returns a Linen module, which needs an example to be initialized: pass example=")
        key = jax.random.key(0) if key is None else key
        variables = module.init(key, *self.example, method=self.call)
        return variables["params"], {name: value for name, value in variables.items() if name != "params"}

    def shapes(self, width: int) -> PyTree:
        """Return the shapes of the parameters at a width, without building them."""
        return self._about(width).shapes

    def can_draw(self, width: int) -> bool:
        """Return whether a key decides the initial parameters."""
        return self.takes_key or self._about(width).drawn_here

    def forward(self, width: int) -> Callable[..., Any] | None:
        """Return the forward pass at a width, for tracing: it builds the model inside, and uses other parameters."""
        if not self._about(width).can_act or not self.example:
            return None

        def forward(params: PyTree, *example: Any) -> Any:
            apply = self.at(width).apply
            assert apply is not None
            outputs = apply(params, *example)
            return [x for x in jax.tree.leaves(outputs) if isinstance(x, jax.Array)]

        return forward

    def _about(self, width: int) -> "_About":
        """Return what is known of the model at a width without building it."""

        def look() -> _About:
            facts: list[tuple[bool, bool]] = []

            def build(key: jax.Array) -> PyTree:
                model = self.at(width, key)
                facts.append((model.apply is not None, model.drawn_here))
                return model.params

            shapes = jax.eval_shape(build, jax.random.key(0))
            return _About(shapes, *facts[-1])

        return self.once(("about", width), look)


class _About(NamedTuple):
    shapes: PyTree
    can_act: bool
    drawn_here: bool


def _call(model: Any, *example: Any) -> Any:
    return model(*example)


def _is_a(x: Any, module: str, name: str) -> bool:
    """Return whether x is an instance of a class of a framework, without importing the framework."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(x, getattr(loaded, name))


def _is_trained(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _filled(structure: Any, params: PyTree, leaves: list[Any]) -> Any:
    """Return a module with its parameters, and with everything else as it was."""
    given = structure.flatten_up_to(params)
    return structure.unflatten([old if new is None else new for new, old in zip(given, leaves, strict=True)])
