"""Initial parameters of the planned size.

A parameter keeps the directions that the model itself drew. Its size is the one it has at the base width, measured
there on one draw, times its factor: so a plan needs to know nothing about how a model initializes itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import eval_context

from widthwise.planning.apply import at_path, map_with
from widthwise.planning.build import Builder, OwnModel
from widthwise.planning.optimizers import Optimizers
from widthwise.planning.stored import PlannedSize, Stored, multiplied, root_mean_square, with_size
from widthwise.scaling import Parameter
from widthwise.scaling.depth import stretched
from widthwise.trace.paths import PyTree, named_leaves


@dataclass(frozen=True, kw_only=True)
class Initial(Optimizers):
    """The initial parameters of a plan.

    Attributes:
        builder: How to build and call the model.
    """

    builder: Builder

    def init(self, key: jax.Array) -> Any:
        """Build the model at its width, with parameters of the planned size.

        Returns:
            What `build` returns: a module, or parameters (without the function beside them).
        """
        if not self.builder.can_draw(self.width):
            raise ValueError(
                "build takes a width only, so it cannot be given a key: let it take (width, key), or pass a model that "
                "you built to plan.rescale(...)"
            )
        return self._finished(self.builder.at(self.width, key))

    def rescale(self, model: Any) -> Any:
        """Bring the parameters of a freshly built model to the planned size, keeping their directions.

        Every parameter gets the root mean square (RMS) that it has at the base width, times its factor; layer by layer
        if layers are stacked. Parameters whose shape is the same at the base width do not change, and neither do zeros.
        Rescaling twice is the same as rescaling once.

        Args:
            model: The model, in any form in which `build` may return it, or its parameters.
        """
        return self._finished(self.builder.read(model))

    def effective(self, stored: Any) -> Any:
        """Return the model as it acts. Only a plan with multipliers needs this."""
        return stored.rebuild(self.acting(stored)) if isinstance(stored, Stored) else self.acting(stored)

    def acting(self, stored: Any) -> PyTree:
        """Return the parameters as they act, as a tree."""
        if not self.multipliers:
            return stored
        if not isinstance(stored, Stored):
            raise ValueError("expected the stored parameters that plan.init or plan.rescale returned")
        return map_with(multiplied, {path: found.multiplier for path, found in self.factors.items()}, stored.params)

    def initial(self, key: jax.Array) -> PyTree:
        """Return initial parameters of the planned size: those of `init`, as a tree."""
        model = self.builder.at(self.width, key)
        params = self._rescaled(model.params)
        return Stored(params, model.rebuild) if self.multipliers else params

    def _finished(self, model: OwnModel) -> Any:
        params = self._rescaled(model.params)
        return Stored(params, model.rebuild) if self.multipliers else model.rebuild(params)

    def _rescaled(self, params: PyTree) -> PyTree:
        self._refuse_other_model(params)
        sizes = {parameter.path: self._planned_size(parameter) for parameter in self.parameters}
        return map_with(with_size, sizes, params)

    def _planned_size(self, parameter: Parameter) -> PlannedSize | None:
        same = parameter.shape == parameter.base_shape and parameter.deepens == 1
        if same and self.factors[parameter.path].init == 1:
            return None
        over = (*parameter.axes.inputs, *parameter.axes.outputs)
        return PlannedSize(self.base_sizes[parameter.path] * self.factors[parameter.path].init, over)

    @property
    def base_sizes(self) -> Mapping[str, np.ndarray]:
        """The root mean square of every parameter at the base point, layer by layer, measured on one draw."""
        return self.builder.once(("sizes", self.base_width, self.grown.base_depth), self._measure_sizes)

    def _measure_sizes(self) -> Mapping[str, np.ndarray]:
        builder = self.builder.deep(self.grown.base_depth)
        origin = {p.path: p.origin or p.path for p in self.parameters}
        axes = {origin[p.path]: (*p.axes.inputs, *p.axes.outputs) for p in self.parameters}

        @jax.jit
        def sizes(key: jax.Array) -> dict[str, jax.Array]:
            leaves = named_leaves(builder.at(self.base_width, key).params)
            return {path: root_mean_square(leaves[path], over) for path, over in axes.items()}

        with eval_context():  # also where `init` is called inside a compiled function
            found = {path: np.asarray(size) for path, size in sizes(jax.random.key(0)).items()}
        return {p.path: stretched(found[origin[p.path]], p) for p in self.parameters}

    def _refuse_other_model(self, params: PyTree) -> None:
        shapes = {parameter.path: parameter.shape for parameter in self.parameters}
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
            if tuple(leaf.shape) != at_path(shapes, path):
                raise ValueError(
                    f"{jax.tree_util.keystr(path)} has shape {tuple(leaf.shape)}: the plan is for width {self.width}, "
                    f"where it has {at_path(shapes, path)}"
                )
