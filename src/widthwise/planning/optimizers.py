"""Optimizers with the factors of a plan: Optax's own, and Widthwise's.

At the base width each is the optimizer it is named after. The factors are transformations of their own, so any other
Optax direction of a known family can be used as well.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import Any

import jax
import optax

from widthwise import optim
from widthwise.parameterize import Layout, Leaf, PyTree, Scales
from widthwise.planning.apply import (
    at_path,
    clip_by_weighted_norm,
    decay_by_factors,
    made_for,
    map_with,
    scale_by_factors,
)
from widthwise.planning.muon import labels, muon_direction
from widthwise.planning.stored import Stored
from widthwise.scaling import Factors, Parameter, Planned
from widthwise.scaling.decay import MOST_DECAY
from widthwise.scaling.orthogonal import MUON_RATES, formula_of, has_muon
from widthwise.theory import ADAFACTOR, ADAM, MUON, SGD, Family, with_adam

DEFAULT_RATES: Mapping[Family, float] = {SGD: 0.1, ADAM: 1e-3, ADAFACTOR: 1e-2}
"""The learning rates of a coordinate check: large enough to see changes, small enough for most models."""


@dataclass(frozen=True, kw_only=True)
class Optimizers(Planned):
    """The optimizers of a plan."""

    def scale_updates(self) -> optax.GradientTransformation:
        """Multiply the update of every parameter by its factor on the learning rate.

        Chain it behind any direction of the plan's family:
        `optax.chain(optax.scale_by_lion(), plan.scale_updates(), optax.scale_by_learning_rate(1e-4))`.
        """
        scaled = scale_by_factors({path: factors.learning_rate for path, factors in self.factors.items()})
        return optax.chain(self._guard(), scaled) if self.multipliers else scaled

    def around(self, direction: optax.GradientTransformation) -> optax.GradientTransformation:
        """Return a direction with the factors on learning rate and epsilon of every parameter.

        A normalized direction with epsilon·f is the same as one with epsilon for gradients that are divided by f. So
        gradients are scaled before, and updates after.

        Args:
            direction: Any Optax direction of the plan's family, such as `optax.scale_by_adam(eps=1e-8)`.
        """
        if self.exponents.family.gradient_power:
            return optax.chain(direction, self.scale_updates())
        gradients = scale_by_factors({path: 1 / factors.epsilon for path, factors in self.factors.items()})
        return optax.chain(gradients, direction, self.scale_updates())

    def clip_by_global_norm(self, max_norm: float) -> optax.GradientTransformation:
        """Clip gradients by their global norm, weighed so that the threshold means the same at every width.

        Gradients change size with width: the entries of a readout's keep theirs while their number grows, those of an
        embedding's shrink. So each parameter counts with the norm that it would have at the base width, where this is
        `optax.clip_by_global_norm`. Use it where you would use that: first in a chain.

        Args:
            max_norm: The largest norm, tuned at the base width.
        """
        return clip_by_weighted_norm(max_norm, {p.path: self._gradient_weight(p) for p in self.parameters})

    def _gradient_weight(self, parameter: Parameter) -> float:
        """Return the inverse of the growth of a parameter's gradient norm."""
        epsilon = self.factors[parameter.path].epsilon / self.grown.everywhere.epsilon
        blocks = float(parameter.deepens)  # all blocks together count as those at the base depth
        if self.family_of(parameter).isometric:  # there, epsilon follows the norm
            return 1 / (epsilon * blocks**0.5)
        elements = prod(parameter.shape) / prod(parameter.base_shape)
        return 1 / (epsilon * (elements * blocks) ** 0.5)

    def adamw(
        self,
        learning_rate: optax.ScalarOrSchedule,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        eps_root: float = 0.0,
        mu_dtype: Any | None = None,
        weight_decay: float = 1e-4,
        mask: Any | None = None,
        *,
        nesterov: bool = False,
    ) -> optax.GradientTransformationExtraArgs:
        """Return Optax's AdamW with the factors of the plan. At the base width, only the default mask differs.

        Args:
            learning_rate: The learning rate at the base width, or a schedule of it.
            b1: Decay of the first moment.
            b2: Decay of the second moment, at the base batch size.
            eps: Epsilon at the base width.
            eps_root: As in Optax.
            mu_dtype: As in Optax.
            weight_decay: As in Optax: a step removes learning_rate · weight_decay of a weight, at every width unless
                the plan has another `decay_rule`. The factors on the learning rates do not apply to it.
            mask: Which parameters decay; by default all but vectors, such as norm scales and biases.
            nesterov: As in Optax.
        """
        self._expect(ADAM, "adamw")
        direction = optax.scale_by_adam(
            b1=b1, b2=self.b2(b2), eps=eps, eps_root=eps_root, mu_dtype=mu_dtype, nesterov=nesterov
        )
        return self._steps(self.around(direction), learning_rate, weight_decay, mask)

    def adam(self, learning_rate: optax.ScalarOrSchedule, **options: Any) -> optax.GradientTransformationExtraArgs:
        """Adam as in Optax; see `adamw`."""
        return self.adamw(learning_rate, weight_decay=0.0, **options)

    def adam_atan2(
        self,
        learning_rate: optax.ScalarOrSchedule,
        *,
        b1: float = 0.9,
        b2: float = 0.999,
        weight_decay: float = 0.0,
        mask: Any | None = None,
    ) -> optax.GradientTransformationExtraArgs:
        """Adam with arctan2 instead of a division, without epsilon; the other options are those of `adamw`."""
        self._expect(ADAM, "adam_atan2")
        direction = self._own(lambda scales, _: optim.adam_atan2(1.0, scales, b1=b1, b2=self.b2(b2)))
        return self._steps(direction, learning_rate, weight_decay, mask)

    def lion(
        self,
        learning_rate: optax.ScalarOrSchedule,
        b1: float = 0.9,
        b2: float = 0.99,
        mu_dtype: Any | None = None,
        weight_decay: float = 1e-3,
        mask: Any | None = None,
    ) -> optax.GradientTransformationExtraArgs:
        """Lion as in Optax, a member of Adam's family; see `adamw`."""
        self._expect(ADAM, "lion")
        return self._steps(self.around(optax.scale_by_lion(b1, b2, mu_dtype)), learning_rate, weight_decay, mask)

    def muon(
        self,
        learning_rate: optax.ScalarOrSchedule,
        *,
        adam_learning_rate: optax.ScalarOrSchedule | None = None,
        weight_decay: float = 0.0,
        adam_weight_decay: float = 0.0,
        mask: Any | None = None,
        consistent_rms: float | None = None,
        **options: Any,
    ) -> optax.GradientTransformationExtraArgs:
        """Return `optax.contrib.muon` with the factors of the plan: Muon for hidden matrices, AdamW for the rest.

        Inputs and outputs of every matrix are those of the plan, so the way round in which a framework stores it,
        stacked layers, and kernels with more than two axes make no difference. At the base width, only the default mask
        differs from Optax.

        Args:
            learning_rate: The learning rate of Muon at the base width, or a schedule of it.
            adam_learning_rate: That of AdamW; by default the same, as in Optax.
            weight_decay: A step removes learning_rate · weight_decay of a matrix that Muon trains, at every width.
            adam_weight_decay: The same for AdamW.
            mask: Which parameters decay; by default all but vectors.
            consistent_rms: The constant in front of √max(out, in), the factor of a plan for "muon_max"; 0.2 by default.
            **options: As in Optax, such as `beta`, `ns_steps`, `eps`, `nesterov` and `adam_b1`.
        """
        family = self.exponents.family
        if not has_muon(family):
            self._expect(with_adam(MUON), "muon")
        if self.grown.everywhere.one_minus_b2 != 1:
            options["adam_b2"] = self.b2(options.get("adam_b2", 0.999))
        direction = muon_direction(self._by_path, family, consistent_rms=consistent_rms, options=options)
        adam_rate = learning_rate if adam_learning_rate is None else adam_learning_rate
        # Apart from the direction, since its factors do not apply to weight decay.
        steps: dict[Hashable, optax.GradientTransformation] = {
            "muon": self._steps(optax.identity(), learning_rate, weight_decay, mask, muon=True),
            "adam": self._steps(optax.identity(), adam_rate, adam_weight_decay, mask, muon=False),
        }
        return optax.chain(self.around(direction), optax.partition(steps, partial(labels, self._by_path)))

    def sgd(
        self,
        learning_rate: optax.ScalarOrSchedule,
        momentum: float | None = None,
        nesterov: bool = False,
        *,
        weight_decay: float = 0.0,
        mask: Any | None = None,
    ) -> optax.GradientTransformationExtraArgs:
        """SGD as in Optax; `weight_decay` and `mask` as in `adamw`."""
        self._expect(SGD, "sgd")
        direction = optax.identity() if momentum is None else optax.trace(momentum, nesterov=nesterov)
        return self._steps(self.around(direction), learning_rate, weight_decay, mask)

    def adafactor(
        self,
        learning_rate: optax.ScalarOrSchedule,
        *,
        decay: float = 0.8,
        epsilon: float = optim.ADAFACTOR_EPSILON,
        clip: float = 1.0,
        floor: float = 1e-3,
        weight_decay: float = 0.0,
        mask: Any | None = None,
    ) -> optax.GradientTransformationExtraArgs:
        """Adafactor, with statistics per layer where layers are stacked; see `widthwise.optim.adafactor`."""
        self._expect(ADAFACTOR, "adafactor")
        direction = self._own(
            lambda scales, layout: optim.adafactor(
                1.0, scales, layout, decay=decay, epsilon=epsilon, clip=clip, floor=floor
            )
        )
        return self._steps(direction, learning_rate, weight_decay, mask)

    def adam_ps(
        self,
        learning_rate: optax.ScalarOrSchedule,
        *,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        floor: float = 1e-3,
        weight_decay: float = 0.0,
        mask: Any | None = None,
    ) -> optax.GradientTransformationExtraArgs:
        """Adam with parameter scaling, a member of Adafactor's family; see `widthwise.optim.adam_ps`."""
        self._expect(ADAFACTOR, "adam_ps")
        direction = self._own(
            lambda scales, layout: optim.adam_ps(1.0, scales, layout, b1=b1, b2=self.b2(b2), epsilon=eps, floor=floor)
        )
        return self._steps(direction, learning_rate, weight_decay, mask)

    def _guard(self) -> optax.GradientTransformation:
        """Refuse parameters that act as they are stored if the plan has multipliers."""

        def init(params: PyTree) -> optax.EmptyState:
            if self.multipliers and not isinstance(params, Stored):
                raise ValueError(
                    "the plan has multipliers: expected the parameters that plan.init or plan.rescale returned, with "
                    "plan.effective(params) where the model is called"
                )
            return optax.EmptyState()

        return optax.GradientTransformation(init, lambda updates, state, params=None: (updates, state))

    def decays(self, params: PyTree) -> PyTree:
        """Return which parameters decay by default: all but vectors."""
        return map_with(lambda parameter, _: not parameter.is_vector, self._by_path, params)

    def bind(self, params: PyTree) -> tuple[Scales, Layout]:
        """Return the factors and the layout of a tree of the plan's parameters, or of some of them."""
        factors = map_with(lambda found, _: found, self.factors, params)
        layout = Layout(
            leaves=tuple(
                Leaf(path=found.path, shape=tuple(leaf.shape), role=found.role, axes=found.axes)
                for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
                for found in [at_path(self._by_path, path)]
            ),
            structure=jax.tree.structure(params),
        )
        fields = {"init_std": "init", "multiplier": "multiplier", "learning_rate": "learning_rate"}
        fields |= {"epsilon": "epsilon", "floor": "floor"}
        is_leaf = lambda x: isinstance(x, Factors)  # noqa: E731
        trees = {
            name: jax.tree.map(lambda found, of=of: getattr(found, of), factors, is_leaf=is_leaf)
            for name, of in fields.items()
        }
        return Scales(**trees), layout

    @cached_property
    def _by_path(self) -> Mapping[str, Parameter]:
        return {parameter.path: parameter for parameter in self.parameters}

    def _own(self, make: Callable[[Scales, Layout], optax.GradientTransformation]) -> optax.GradientTransformation:
        """Return one of Widthwise's optimizers as a direction: with learning rate 1, and without its sign."""
        return optax.chain(self._guard(), made_for(lambda params: make(*self.bind(params))), optax.scale(-1.0))

    def _steps(
        self,
        direction: optax.GradientTransformation,
        learning_rate: optax.ScalarOrSchedule,
        weight_decay: float,
        mask: Any | None,
        *,
        muon: bool | None = None,
    ) -> optax.GradientTransformationExtraArgs:
        """Turn a direction into steps; in a mixture, those of the parameters that Muon trains, or of the others."""
        trained = [p.path for p in self.parameters if muon in (None, p.muon)]
        factors = {path: self.factors[path].decay for path in trained}
        _refuse_bad_rate(learning_rate, weight_decay, max(factors.values(), default=1.0))
        none = isinstance(weight_decay, int | float) and weight_decay == 0  # optax.inject_hyperparams passes arrays
        decay = optax.masked(decay_by_factors(weight_decay, factors), self.decays if mask is None else mask)
        return optax.chain(direction, optax.identity() if none else decay, optax.scale_by_learning_rate(learning_rate))

    def _expect(self, family: Family, name: str) -> None:
        if self.exponents.family != family:
            raise ValueError(
                f"the plan is for optimizers of the {self.exponents.family.name} family, and {name} is of "
                f"{family.name}: pass optimizer={name!r} to plan(...), since rates scale differently with width"
            )

    def default(self, learning_rate: float | None = None) -> optax.GradientTransformation:
        """Return the plainest optimizer of the plan's family: SGD, Adam, Adafactor, or Muon with Adam."""
        family = self.exponents.family
        if has_muon(family):
            if learning_rate is not None:
                return self.muon(learning_rate)
            rate = MUON_RATES.get(formula_of(family), 0.0)  # which is refused for the factor that Optax does not have
            return self.muon(rate, adam_learning_rate=DEFAULT_RATES[ADAM])
        if family not in DEFAULT_RATES:
            raise ValueError(f"there is no default optimizer of the {family.name} family: pass optimizer=")
        make: Mapping[Family, Callable[..., optax.GradientTransformation]]
        make = {SGD: self.sgd, ADAM: self.adam, ADAFACTOR: self.adafactor}
        return make[family](DEFAULT_RATES[family] if learning_rate is None else learning_rate)


def _refuse_bad_rate(learning_rate: optax.ScalarOrSchedule, weight_decay: float, growth: float) -> None:
    if isinstance(weight_decay, int | float) and not 0 <= weight_decay < float("inf"):
        raise ValueError(f"weight_decay is {weight_decay}: expected a number from 0 up")
    if not isinstance(learning_rate, int | float):
        return
    if not 0 <= learning_rate < float("inf"):
        raise ValueError(f"learning_rate is {learning_rate}: expected a number from 0 up")
    if isinstance(weight_decay, int | float) and (part := learning_rate * weight_decay * growth) > MOST_DECAY:
        factor = "" if growth == 1 else f" · {growth:.4g}"
        raise ValueError(
            f"a step would remove learning_rate · weight_decay{factor} = {part:.2g} of every weight: expected at most "
            f"{MOST_DECAY}"
        )
