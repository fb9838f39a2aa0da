"""Capture the inputs and outputs of each dense layer of any model, without changing the model.

Alignment is a property of a weight and the activations it is multiplied by, which models do not expose. But JAX can
trace a model, and in the trace a dense layer is a matrix product with a parameter on one side. So the model is traced
and evaluated operation by operation, while keeping track of the parameters. The captured weights are as they act: cast,
transposed and multiplied as in the model.
"""

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend.core import Literal as Constant
from jaxtyping import Array, Float

from widthwise.parameterize import PyTree
from widthwise.parameterize.paths import named_leaves

_CALLS = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "custom_jvp_call"}
_CALLS |= {"custom_vjp_call", "custom_vjp_call_jaxpr"}
_SAME_WEIGHT = {"convert_element_type", "reshape", "transpose", "copy", "copy_p", "sharding_constraint", "squeeze"}


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Use:
    """A use of a weight in a forward pass. This class itself is a lookup, which does not sum over anything.

    Attributes:
        outputs: The immediate output, one row per example and position.
    """

    outputs: Float[Array, "rows fan_out"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Product(Use):
    """The use of a weight in a matrix product.

    Attributes:
        weight: The weight as it acts, as a matrix.
        inputs: The activations it is multiplied by, one row per example and position.
    """

    weight: Float[Array, "fan_in fan_out"]
    inputs: Float[Array, "rows fan_in"]


def capture(
    model: Callable[..., PyTree], params: PyTree, *arguments: Any, layers: Sequence[str] | None = None
) -> tuple[PyTree, dict[str, Use]]:
    """Call a model; return its result and every use of its weights in matrix products and lookups.

    Works under `jit` and `vmap`. A weight that is used twice is listed as `path` and `path#2`.

    Args:
        model: A function of parameters and `arguments`, such as a forward pass.
        params: Its parameters.
        arguments: Its other arguments.
        layers: Paths of the weights to capture, or patterns such as `blocks/*/kernel`; None for all.

    Returns:
        The model's result, and the uses by path in the order of the forward pass.

    >>> import jax.numpy as jnp
    >>> def model(params, x): return jnp.tanh(x @ params["in"]) @ params["out"].T
    >>> _, uses = capture(model, {"in": jnp.ones((3, 8)), "out": jnp.ones((2, 8))}, jnp.ones((5, 3)))
    >>> {path: (use.inputs.shape, use.weight.shape) for path, use in uses.items()}
    {'in': ((5, 3), (3, 8)), 'out': ((5, 8), (8, 2))}
    """
    paths = list(named_leaves(params))
    wanted = _matching(paths, layers)
    traced, shape = jax.make_jaxpr(model, return_shape=True)(params, *arguments)
    leaves = jax.tree.leaves((params, *arguments))
    tags = [path if path in wanted else None for path in paths] + [None] * (len(leaves) - len(paths))
    uses: dict[str, Use] = {}
    outputs, _ = _evaluate(traced.jaxpr, traced.consts, leaves, tags, uses)
    if layers is not None:
        _refuse_missing(wanted, uses)
    return jax.tree.unflatten(jax.tree.structure(shape), outputs), uses


def _matching(paths: Sequence[str], layers: Sequence[str] | None) -> set[str]:
    if layers is None:
        return set(paths)
    for pattern in layers:
        if not any(fnmatch.fnmatchcase(path, pattern) for path in paths):
            raise ValueError(f"no parameter matches {pattern!r}: expected a path or pattern, of {', '.join(paths)}")
    return {path for path in paths if any(fnmatch.fnmatchcase(path, pattern) for pattern in layers)}


def _refuse_missing(wanted: set[str], uses: dict[str, Use]) -> None:
    missing = sorted(wanted - set(uses))
    if missing:
        raise ValueError(
            f"{missing[0]!r} was not seen in a matrix product or lookup of the forward pass: layers inside `lax.scan`, "
            "and weights that are combined before they act, cannot be captured"
        )


Tags: TypeAlias = Sequence[str | None]


def _evaluate(
    jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any], tags: Tags, uses: dict[str, Use]
) -> tuple[list[Any], list[str | None]]:
    """Evaluate a traced function, propagating the tags of weights and recording their uses."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    known: dict[Any, str] = {var: tag for var, tag in zip(jaxpr.invars, tags, strict=True) if tag is not None}

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, Constant) else values[atom]

    def tag(atom: Any) -> str | None:
        return None if isinstance(atom, Constant) else known.get(atom)

    for operation in jaxpr.eqns:
        given, given_tags = [value(atom) for atom in operation.invars], [tag(atom) for atom in operation.invars]
        name, body = operation.primitive.name, None
        if any(given_tags) and name in _CALLS:
            body = next((x for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if (x := operation.params.get(key))), None)
        if body is not None:
            closed = (body.jaxpr, body.consts) if hasattr(body, "jaxpr") else (body, ())
            results, result_tags = _evaluate(*closed, given, given_tags, uses)
        else:
            results = operation.primitive.bind(*given, **operation.primitive.get_bind_params(operation.params))
            results = list(results) if operation.primitive.multiple_results else [results]
            result_tags = [_inherited(name, given, given_tags)] * len(results)
            if any(given_tags) and (found := _use(name, operation.params, given, given_tags, results[0])):
                _note(uses, *found)
        values.update(zip(operation.outvars, results, strict=True))
        known.update((var, x) for var, x in zip(operation.outvars, result_tags, strict=True) if x is not None)
    return [value(atom) for atom in jaxpr.outvars], [tag(atom) for atom in jaxpr.outvars]


def _inherited(name: str, given: Sequence[Any], tags: Tags) -> str | None:
    """Return the weight that a result still is: one that was cast, transposed, or multiplied by a scalar."""
    if name in _SAME_WEIGHT:
        return tags[0]
    if name in ("mul", "div"):
        tagged = [index for index, tag in enumerate(tags) if tag]
        if len(tagged) == 1 and all(jnp.ndim(x) == 0 for index, x in enumerate(given) if index not in tagged):
            return tags[tagged[0]]
    return None


def _use(name: str, params: dict[str, Any], given: Sequence[Any], tags: Tags, result: Any) -> tuple[str, Use] | None:
    if name == "gather" and tags[0] and jnp.ndim(given[0]) == 2 and result.shape[-1:] == given[0].shape[-1:]:
        return tags[0], Use(outputs=result.reshape(-1, result.shape[-1]))
    if name != "dot_general" or all(tags) or not any(tags):
        return None
    side: Literal[0, 1] = 0 if tags[0] else 1
    contracted, batched = params["dimension_numbers"]
    if any(batched):  # batched weights are several layers, not one
        return None
    path = tags[side]
    assert path is not None
    weight, inputs = (_matrix(given[i], contracted[i], sums_first=i == side) for i in (side, 1 - side))
    # The free axes of the left operand come first in the result.
    outputs = result.reshape(weight.shape[1], -1).T if side == 0 else result.reshape(-1, weight.shape[1])
    return path, Product(weight=weight, inputs=inputs, outputs=outputs)


def _matrix(x: Any, contracted: Sequence[int], *, sums_first: bool) -> jax.Array:
    """Return an operand as a matrix, with the contracted axes first or last."""
    free = [axis for axis in range(x.ndim) if axis not in contracted]
    summed = 1
    for axis in contracted:
        summed *= x.shape[axis]
    if sums_first:
        return jnp.transpose(x, (*contracted, *free)).reshape(summed, -1)
    return jnp.transpose(x, (*free, *contracted)).reshape(-1, summed)


def _note(uses: dict[str, Use], path: str, use: Use) -> None:
    names: Iterator[str] = (path if count == 1 else f"{path}#{count}" for count in range(1, len(uses) + 2))
    uses[next(name for name in names if name not in uses)] = use
