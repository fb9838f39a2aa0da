"""Capture the inputs and outputs of each layer of any model, without changing the model.

Alignment is a property of a weight and the activations it is multiplied by, which models do not expose. But JAX can
trace a model, and in the trace a layer is a product with a parameter on one side (`widthwise.trace`). So the model is
traced and evaluated operation by operation. The captured weights are as they act: cast, transposed, joined and
multiplied as in the model. Layers inside `lax.scan` are captured one by one.
"""

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal as Constant
from jaxtyping import Array, Float

from widthwise.coordinates import weights_of as weights_of
from widthwise.scaling.found import Found, Key, Value
from widthwise.scaling.views import View
from widthwise.trace.paths import PyTree, named_leaves
from widthwise.trace.walk import arguments_of, body_of, closed_over, follow, in_scan, scan_counts


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Captured:
    """A use of a weight in a forward pass. This class itself is a lookup, which does not sum over anything.

    Attributes:
        outputs: The immediate output, one row per example and position.
    """

    outputs: Float[Array, "*batch rows fan_out"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Product(Captured):
    """The use of a weight in a product, as a matrix product; several at once for experts and groups.

    Attributes:
        weight: The weight as it acts.
        inputs: The activations it is multiplied by, one row per example and position.
    """

    weight: Float[Array, "*batch fan_in fan_out"]
    inputs: Float[Array, "*batch rows fan_in"]


def capture(
    model: Callable[..., PyTree], params: PyTree, *arguments: Any, layers: Sequence[str] | None = None
) -> tuple[PyTree, dict[str, Captured]]:
    """Call a model; return its result and every use of its weights in products and lookups.

    Works under `jit` and `vmap`. A weight that is used twice is listed as `path` and `path#2`, layer 3 of a scanned
    weight as `path[3]`, and weights that are joined before they act as `path+path`; `weights_of` returns the paths.

    Args:
        model: A function of parameters and `arguments`, such as a forward pass.
        params: Its parameters.
        arguments: Its other arguments.
        layers: Paths of the weights to capture, or patterns such as `blocks/*/kernel`; None for all.

    Returns:
        The model's result, and the uses by name in the order of the forward pass.

    >>> import jax.numpy as jnp
    >>> def model(params, x): return jnp.tanh(x @ params["in"]) @ params["out"].T
    >>> _, uses = capture(model, {"in": jnp.ones((3, 8)), "out": jnp.ones((2, 8))}, jnp.ones((5, 3)))
    >>> {path: (use.inputs.shape, use.weight.shape) for path, use in uses.items()}
    {'in': ((5, 3), (3, 8)), 'out': ((5, 8), (8, 2))}
    """
    named = named_leaves(params)
    wanted = _matching(list(named), layers)
    traced, shape = jax.make_jaxpr(model, return_shape=True)(params, *arguments)
    leaves = jax.tree.leaves((params, *arguments))
    known = [Value((View.of(path, leaf.shape),)) if path in wanted else Value() for path, leaf in named.items()]
    run = _Run(found=Found(), uses={}, scanned={})
    jaxpr = traced.jaxpr
    about = {**closed_over(jaxpr, known), **dict(zip(jaxpr.invars, arguments_of(jaxpr, known), strict=True))}
    outputs, _ = run.evaluate(jaxpr, traced.consts, leaves, about, ())
    if layers is not None:
        _refuse_missing(wanted, run.uses)
    return jax.tree.unflatten(jax.tree.structure(shape), outputs), run.uses


def _matching(paths: Sequence[str], layers: Sequence[str] | None) -> set[str]:
    if layers is None:
        return set(paths)
    for pattern in layers:
        if not any(fnmatch.fnmatchcase(path, pattern) for path in paths):
            raise ValueError(f"no parameter matches {pattern!r}: expected a path or pattern, of {', '.join(paths)}")
    return {path for path in paths if any(fnmatch.fnmatchcase(path, pattern) for pattern in layers)}


def _refuse_missing(wanted: set[str], uses: dict[str, Captured]) -> None:
    missing = sorted(wanted - {path for name in uses for path in weights_of(name)})
    if missing:
        raise ValueError(
            f"{missing[0]!r} was not seen in a product or lookup of the forward pass: weights that act element by "
            "element, or inside `while`, `cond` or `shard_map`, cannot be captured"
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """The evaluation of a traced function, with what it found.

    Attributes:
        found: How parameters are used.
        uses: The captured uses by name.
        scanned: Whether a name is one iteration's own weight, for the body of a scan.
    """

    found: Found
    uses: dict[str, Captured]
    scanned: dict[str, bool]

    def evaluate(
        self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any], known: Mapping[Any, Value], place: Key
    ) -> tuple[list[Any], list[Value]]:
        """Evaluate a traced function, following its parameters and capturing their uses."""
        arrays: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        arrays.update(zip(jaxpr.invars, arguments, strict=True))
        values = dict(known)

        def array(atom: Any) -> Any:
            return atom.val if isinstance(atom, Constant) else arrays[atom]

        def value(atom: Any) -> Value:
            return Value() if isinstance(atom, Constant) else values.get(atom, Value())

        for index, operation in enumerate(jaxpr.eqns):
            given, key = [array(atom) for atom in operation.invars], (*place, index)
            about = [value(atom) for atom in operation.invars]
            results, found = self._operation(operation, given, about, key)
            arrays.update(zip(operation.outvars, results, strict=True))
            values.update(zip(operation.outvars, found, strict=True))
        return [array(atom) for atom in jaxpr.outvars], [value(atom) for atom in jaxpr.outvars]

    def _operation(
        self, operation: Any, given: list[Any], about: list[Value], key: Key
    ) -> tuple[list[Any], list[Value]]:
        name, body = operation.primitive.name, body_of(operation)
        has_weights = any(value.views for value in about)
        if has_weights and body is not None and name != "shard_map":
            closed = next(x for x in operation.params.values() if getattr(x, "jaxpr", x) is body)
            known = dict(zip(body.invars, about, strict=True))
            return self.evaluate(body, getattr(closed, "consts", ()), given, known, key)
        if has_weights and name == "scan":
            return self._scan(operation, given, about, key)
        results = operation.primitive.bind(*given, **operation.primitive.get_bind_params(operation.params))
        results = list(results) if operation.primitive.multiple_results else [results]
        found = follow(operation, about, self.found, key)
        used = [(path, use) for (at, path), use in self.found.uses.items() if at == key] if has_weights else []
        products = [path for path, use in used if use.kind == "product"]
        lookups = [path for path, use in used if use.kind == "lookup"]
        if lookups:
            rows = results[0].reshape(-1, results[0].shape[-1]) if results[0].ndim else results[0].reshape(1, 1)
            self._note(lookups, about[0], Captured(outputs=rows))
        elif products and (product := _product(operation, given, about, results[0])) is not None:
            self._note(products, next(value for value in reversed(about[:2]) if value.views), product)
        return results, found

    def _note(self, paths: list[str], weight: Value, use: Captured) -> None:
        name = "+".join(paths)
        names: Iterator[str] = (name if count == 1 else f"{name}#{count}" for count in range(1, len(self.uses) + 2))
        name = next(name for name in names if name not in self.uses)
        self.uses[name] = use
        self.scanned[name] = any(view.scanned for view in weight.views)

    def _scan(self, operation: Any, given: list[Any], about: list[Value], key: Key) -> tuple[list[Any], list[Value]]:
        params = operation.params
        constants, carries = scan_counts(params)
        inside = dict(zip(params["jaxpr"].jaxpr.invars, in_scan(operation, about, self.found, key), strict=True))
        fixed, each = given[:constants], given[constants + carries :]
        run = _Run(found=self.found, uses={}, scanned={})
        order: list[str] = []

        def body(carry: list[Any], rows: list[Any]) -> tuple[list[Any], tuple[list[Any], dict[str, Captured]]]:
            run.uses.clear()
            closed = params["jaxpr"]
            results, _ = run.evaluate(closed.jaxpr, closed.consts, [*fixed, *carry, *rows], inside, key)
            order[:] = run.uses
            return results[:carries], (results[carries:], dict(run.uses))

        carry, (stacked, uses) = jax.lax.scan(
            body,
            given[constants : constants + carries],
            each,
            length=params["length"],
            reverse=params["reverse"],
            unroll=params["unroll"],
        )
        for name in order:
            self._unstack(name, uses[name], params["length"], scanned=run.scanned[name])
        return [*carry, *stacked], follow(operation, about, self.found, key)

    def _unstack(self, name: str, uses: Captured, length: int, *, scanned: bool) -> None:
        """Note the uses of all iterations: as layers if each has a weight of its own, else as rows."""
        first, count = name, 2
        while name in self.uses or f"{name}[0]" in self.uses:
            name, count = f"{first}#{count}", count + 1
        if scanned:
            for index in range(length):
                self.uses[f"{name}[{index}]"] = jax.tree.map(lambda x, i=index: x[i], uses)
                self.scanned[f"{name}[{index}]"] = False
            return
        outputs = _all_rows(uses.outputs)
        self.scanned[name] = False
        self.uses[name] = (
            Product(weight=uses.weight[0], inputs=_all_rows(uses.inputs), outputs=outputs)
            if isinstance(uses, Product)
            else Captured(outputs=outputs)
        )


def _all_rows(x: jax.Array) -> jax.Array:
    """Return the rows of all iterations of a scan, which come first, as rows of one matrix."""
    moved = jnp.moveaxis(x, 0, -3)
    return moved.reshape(*moved.shape[:-3], -1, moved.shape[-1])


def _product(operation: Any, given: Sequence[Any], about: Sequence[Value], result: Any) -> Product | None:
    """Return a product as a product of matrices; None if its kind is not known."""
    side = 1 if about[1].views and not (about[1].dynamic and about[0].is_weight) else 0
    match operation.primitive.name:
        case "dot_general":
            contracted, batched = operation.params["dimension_numbers"]
            weight = _matrices(given[side], batched[side], contracted[side], sums_first=True)
            inputs = _matrices(given[1 - side], batched[1 - side], contracted[1 - side], sums_first=False)
            # The batch axes of the result come first, then the free axes of the left operand.
            shape = result.shape[: len(batched[0])]
            if side == 0:
                outputs = jnp.swapaxes(result.reshape(*shape, weight.shape[-1], -1), -1, -2)
            else:
                outputs = result.reshape(*shape, -1, weight.shape[-1])
            return Product(weight=weight, inputs=inputs, outputs=outputs)
        case "conv_general_dilated" if side == 1 and operation.params["batch_group_count"] == 1:
            return _convolution(operation.params, given[0], given[1], result)
    return None


def _matrices(x: Any, batched: Sequence[int], contracted: Sequence[int], *, sums_first: bool) -> jax.Array:
    """Return an operand as matrices, with the contracted axes first or last."""
    free = [axis for axis in range(x.ndim) if axis not in (*contracted, *batched)]
    order = (*batched, *contracted, *free) if sums_first else (*batched, *free, *contracted)
    summed = prod(x.shape[axis] for axis in contracted)
    sizes = [x.shape[axis] for axis in batched]
    return jnp.transpose(x, order).reshape(*sizes, *((summed, -1) if sums_first else (-1, summed)))


def _convolution(params: dict[str, Any], images: Any, kernel: Any, result: Any) -> Product:
    """Return a convolution as a product: every patch of the images is a row."""
    _, kernel_axes, out_axes = numbers = params["dimension_numbers"]
    groups = params["feature_group_count"]
    patches = jax.lax.conv_general_dilated_patches(
        images,
        [kernel.shape[axis] for axis in kernel_axes[2:]],
        params["window_strides"],
        params["padding"],
        lhs_dilation=params["lhs_dilation"],
        rhs_dilation=params["rhs_dilation"],
        dimension_numbers=numbers,
    )
    weight = jnp.transpose(kernel, kernel_axes).reshape(groups, kernel.shape[kernel_axes[0]] // groups, -1)
    inputs, outputs = (
        jnp.moveaxis(x, out_axes[1], -1).reshape(-1, groups, x.shape[out_axes[1]] // groups).swapaxes(0, 1)
        for x in (patches, result)
    )
    weight = weight.swapaxes(-1, -2)
    if groups == 1:
        weight, inputs, outputs = weight[0], inputs[0], outputs[0]
    return Product(weight=weight, inputs=inputs, outputs=outputs)
