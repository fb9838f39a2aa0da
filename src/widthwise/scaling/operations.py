"""What one operation of a trace does with parameters: move them, combine them, or let them act.

Operations have the names and parameters that they have in JAX (`dot_general`, `gather`, …). Nothing of JAX is needed:
an operation is any object with a `primitive`, `params`, `invars` and `outvars`, and other frameworks translate theirs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from widthwise.scaling.found import Found, Key, Value, note
from widthwise.scaling.proportions import PRODUCTS, SAME, carried
from widthwise.scaling.streams import flow_of
from widthwise.scaling.uses import Kind
from widthwise.scaling.views import View

_PROPORTIONAL = {"mul", "div", "neg", "select_n", "real", "add_any", *SAME}
_SUMS = {"add", "sub", "add_any"}


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that contains no others, and what is known of its operands."""

    operation: Any
    given: list[Value]
    found: Found
    key: Key

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.operation.primitive.name

    @property
    def params(self) -> Mapping[str, Any]:
        """What it was called with, beside operands."""
        return self.operation.params

    def shape(self, operand: int) -> tuple[int, ...]:
        """Return the shape of an operand."""
        return tuple(self.operation.invars[operand].aval.shape)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of its first result."""
        return tuple(self.operation.outvars[0].aval.shape)

    @property
    def plain(self) -> Value:
        """The result, knowing only what it depends on."""
        return Value(
            dynamic=any(value.dynamic for value in self.given),
            sources=frozenset[Key]().union(*(value.sources for value in self.given)),
        )

    def results(self) -> list[Value]:
        """Note what the operation does with parameters; return what is known of its results."""
        flow = flow_of(self)
        proportional = carried(self)
        return [
            replace(value, proportional=proportional if value.dynamic else frozenset(), flow=flow)
            for value in self._followed()
        ]

    def _followed(self) -> list[Value]:
        if self.name == "dot_general" and all(value.dynamic for value in self.given):
            # What is multiplied by another activation must neither grow nor shrink, so it is not a readout.
            self.found.reached |= self.plain.sources
        if not any(value.views or value.gains for value in self.given):
            return [self.plain] * len(self.operation.outvars)
        if self.name in PRODUCTS:
            return [self._product()]
        if self.name == "gather":
            return [self._gather()]
        if self.name == "split":
            return [self.given[0].resized(var.aval.shape) for var in self.operation.outvars]
        if (move := self._move()) is not None:
            return [self.given[0].moved(move)] * len(self.operation.outvars)
        if self.name.startswith("reduce_"):
            return [self._reduce()] * len(self.operation.outvars)
        if self.name == "concatenate" or self._is_elementwise():
            return [self._elementwise()] * len(self.operation.outvars)
        for value in self.given:
            if value.is_weight:
                self.found.unseen.update((view.path, self.name) for view in value.views)
        return [replace(self.plain, dynamic=True)] * len(self.operation.outvars)

    def _move(self) -> Callable[[View], View | None] | None:
        """Return how the operation moves the elements of its first operand, if that is all it does."""
        params, shape = self.params, self.result_shape
        match self.name:
            case "transpose":
                return lambda view: view.transposed(params["permutation"])
            case "reshape":
                return lambda view: view.reshaped(shape)
            case "squeeze":
                return lambda view: view.without([axis % len(view.parts) for axis in params["dimensions"]])
            case "expand_dims":
                return lambda view: view.reshaped(shape)
            case "broadcast_in_dim":
                return lambda view: view.broadcast(shape, params["broadcast_dimensions"])
            case "slice" | "dynamic_slice" | "pad":
                return lambda view: view.sliced(shape)
            case "fft":
                return lambda view: view.resized(shape)
            case name:
                return (lambda view: view) if name in SAME else None

    def _is_elementwise(self) -> bool:
        shapes = [self.shape(i) for i, value in enumerate(self.given) if value.views or value.gains]
        return all(
            len(shape) == len(self.result_shape)
            and all(size in (1, result) for size, result in zip(shape, self.result_shape, strict=True))
            for shape in shapes
        )

    def _elementwise(self) -> Value:
        """Combine operands element by element, or side by side."""
        weights = [i for i, value in enumerate(self.given) if value.is_weight]
        others = [i for i, value in enumerate(self.given) if value.dynamic]
        if not others:
            return replace(self.plain, views=self._combined(weights))
        for i in weights:
            self._settle(self.given[i].views)
        gains = self._gains(weights, others)
        if self.name in _PROPORTIONAL and not weights and len(others) == 1:
            # A scaled lookup is still a lookup.
            kept = self.given[others[0]]
            return replace(self.plain, views=kept.views, multiplied=kept.multiplied, gains=gains)
        multiplied = self._combined(weights) if self.name == "mul" else ()
        return replace(self.plain, views=multiplied, multiplied=bool(multiplied), gains=gains)

    def _combined(self, weights: list[int]) -> tuple[View, ...]:
        """Return the views of an array that is made of several weights, or of one and constants."""
        joined, shape = self.name == "concatenate", self.result_shape
        linear = joined or self.name in _PROPORTIONAL or (self.name in _SUMS and len(weights) == len(self.given))
        views: dict[str, View] = {}
        for i in weights:
            for view in self.given[i].views:
                view = view.resized(shape) if joined else view.broadcast(shape, range(len(shape)))
                again = view.path in views  # normalized by its own size, for instance
                fuller = not again or len(view.all_axes) > len(views[view.path].all_axes)
                kept = view if fuller else views[view.path]
                views[view.path] = kept if linear and (joined or not again) else kept.nonlinear()
        return tuple(views.values())

    def _gains(self, weights: list[int], others: list[int]) -> frozenset[str]:
        carried = [self.given[i].gains for i in others if self.given[i].gains]
        own = frozenset(view.path for i in weights for view in self.given[i].views)
        linear = all(view.linear for i in weights for view in self.given[i].views)
        if self.name == "mul" and linear and len(carried) + bool(own) == 1:
            return carried[0] if carried else own
        constants = len(self.given) - len(weights) - len(others)
        if self.name in _SUMS and linear and len(carried) == len(others) == 1 and not constants:
            return carried[0] | own
        if self.name in _PROPORTIONAL and self.given[0].gains and len(carried) == 1 and not own:
            return carried[0]
        return frozenset()

    def _reduce(self) -> Value:
        value, axes = self.given[0], tuple(self.params.get("axes", ()))
        if value.is_weight:
            reduced = value.moved(lambda view: view.without(axes))
            return reduced if self.name == "reduce_sum" else reduced.moved(View.nonlinear)
        summed = [view for view in value.views if value.multiplied and view.axes(axes)]
        if self.name != "reduce_sum" or not summed:
            return self.plain
        for view in summed:  # a product written as a multiplication and a sum
            self._forget("elementwise", view.path)
            self._note("product", [view], contracted=axes)
        self.found.reached |= value.sources
        return Value(dynamic=True, sources=value.sources | {self.key})

    def _gather(self) -> Value:
        table, indices = self.given[0], self.given[1]
        if not table.views:
            return self.plain
        numbers, sizes, shape = self.params["dimension_numbers"], self.params["slice_sizes"], self.result_shape
        chosen = tuple(numbers.collapsed_slice_dims) + tuple(numbers.operand_batching_dims)
        kept = [axis for axis in range(len(sizes)) if axis not in chosen]
        cut = [sizes[axis] for axis in kept]

        def selected(view: View) -> View:
            return view.one_of(chosen).sliced(cut).broadcast(shape, numbers.offset_dims)

        picks = prod(size for at, size in enumerate(shape) if at not in numbers.offset_dims)
        several = len(sizes) == 2 and len(kept) == 1 and picks > 1
        dynamic = indices.dynamic or several  # rows of a table, such as positions, are a lookup in any case
        if table.is_weight and dynamic:
            single = [axis for axis in kept if sizes[axis] == 1]  # as vmap leaves them
            self._note("lookup", table.views, contracted=(*chosen, *single))
        picked = table.moved(selected)
        return replace(picked, dynamic=table.dynamic or dynamic, sources=table.sources | indices.sources)

    def _product(self) -> Value:
        """Multiply by a parameter and sum, or by several that were combined before."""
        left, right = self.given[:2]
        contracted, batched = self._dimensions()
        weights = [i for i in (0, 1) if self.given[i].is_weight]
        if weights and not self.plain.dynamic and self.params.get("detached"):
            return Value()  # what is estimated from weights alone, without a gradient, is a constant
        if len(weights) == 1 and self._is_constant_vector(1 - weights[0]):
            return self._product_of_weights(contracted, batched)  # the largest singular value, for instance
        if len(weights) == 2:
            learned = self._learned_activations()
            if not learned and self.name == "dot_general":
                return self._product_of_weights(contracted, batched)
            for i in learned:
                self._settle(self.given[i].views)
            weights = [i for i in weights if i not in learned]
            if not weights:
                return Value(dynamic=True, sources=self.plain.sources | {self.key})
        if not weights:  # rows that were looked up act as weights if the other side is an activation
            matrices = [any(len(view.all_axes) > 1 for view in self.given[i].views) for i in (0, 1)]
            weights = [i for i in (0, 1) if matrices[i] and not self.given[1 - i].views]
        if not weights:
            return self.plain
        side = weights[-1]
        if batched[0] and _is_learned_activation(self.given[side].views):
            self._settle(self.given[side].views)  # learned queries, split into heads
            return Value(dynamic=True, sources=self.plain.sources | {self.key})
        if self.given[side].dynamic:
            for view in self.given[side].views:
                self._forget("lookup", view.path)
        other = right if side == 0 else left
        self.found.reached |= other.sources
        self._note("product", self.given[side].views, contracted[side], batched[side], other.gains)
        return Value(dynamic=True, sources=left.sources | right.sources | {self.key})

    def _is_constant_vector(self, operand: int) -> bool:
        value = self.given[operand]
        return self.name == "dot_general" and not (value.dynamic or value.views) and len(self.shape(operand)) == 1

    def _learned_activations(self) -> list[int]:
        """Return which of two operands made of parameters is an activation that was learned, such as latents.

        The two factors of a low-rank weight are linear and different. What was normalized, or went through a
        nonlinearity, is not a weight but what weights act on; and so is what meets itself, as in attention.
        """
        paths = [{view.path for view in self.given[i].views} for i in (0, 1)]
        curved = [i for i in (0, 1) if any(not view.linear for view in self.given[i].views)]
        return [0, 1] if paths[0] & paths[1] else curved

    def _settle(self, views: Sequence[View]) -> None:
        """Note the uses of parameters whose combination becomes an activation."""
        for view in views:
            self._note("product" if view.passed else "elementwise", [view])

    def _dimensions(self) -> tuple[tuple[Sequence[int], ...], tuple[Sequence[int], ...]]:
        """Return the axes of both operands that are summed over, and those that are batched."""
        if self.name == "dot_general":
            return self.params["dimension_numbers"]
        if self.name == "conv_general_dilated":
            left, right, _ = self.params["dimension_numbers"]
            return ((left[1],), tuple(right[1:])), ((), ())
        numbers = self.params.get("ragged_dot_dimension_numbers")
        if numbers is None:
            return ((1,), (1,)), ((), (0,))
        contracted, batched = numbers.dot_dimension_numbers
        return contracted, (batched[0], (*batched[1], *numbers.rhs_group_dimensions))

    def _product_of_weights(self, contracted: tuple[Sequence[int], ...], batched: tuple[Sequence[int], ...]) -> Value:
        """Multiply two parameters, as in a low-rank addition to a weight."""
        shape = self.result_shape
        free = [[at for at in range(len(self.shape(i))) if at not in (*contracted[i], *batched[i])] for i in (0, 1)]
        batches = list(range(len(batched[0])))
        places = [
            [*batches, *range(len(batches), len(batches) + len(free[0]))],
            [*batches, *range(len(batches) + len(free[0]), len(shape))],
        ]

        def one(i: int) -> tuple[View, ...]:
            return tuple(
                replace(view, passed=view.passed | view.axes(contracted[i]))
                .transposed([*batched[i], *free[i]])
                .broadcast(shape, places[i])
                for view in self.given[i].views
            )

        return replace(self.plain, views=one(0) + one(1))

    def _note(self, kind: Kind, views: Sequence[View], *where: Any, **others: Any) -> None:
        note(self.found, self.key, kind, views, *where, **others)

    def _forget(self, kind: Kind, path: str) -> None:
        """Remove the last use of a parameter, which turns out to be part of another."""
        for place, use in reversed(self.found.uses.items()):
            if use.path == path and use.kind == kind:
                del self.found.uses[place]
                return


def _is_learned_activation(views: Sequence[View]) -> bool:
    """Return whether an array is what a weight made of a parameter, with or without a bias."""
    return any(view.passed for view in views) and all(view.passed or len(view.all_axes) <= 1 for view in views)
