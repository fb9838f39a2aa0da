"""Optimizers as Optax gradient transformations that apply a prescription.

>>> import jax.numpy as jnp
>>> import widthwise as ww
>>> def model(n): return {"in": {"kernel": jnp.ones((3, n))}, "out": {"kernel": jnp.ones((n, 2))}}
>>> exponents = ww.solve(ww.MUP, ww.ADAM, ww.FULL)
>>> plan = ww.prescribe(model(64), exponents=exponents, width=64, base_width=16, other=model(16), convention=ww.flax)
>>> optimizer = ww.optim.adam(1e-3, plan)

All of them work under `jit`, under `vmap` over lanes and on sharded parameters. All their numeric arguments may be
traced: a step function that creates its optimizer inside is compiled once for all learning rates, epsilons and scales.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import optax

from widthwise.optim.adafactor import EPSILON as ADAFACTOR_EPSILON
from widthwise.optim.adafactor import adafactor as adafactor
from widthwise.optim.adam import B2 as ADAM_B2
from widthwise.optim.adam import EPSILON as ADAM_EPSILON
from widthwise.optim.adam import adam as adam
from widthwise.optim.adam import adam_atan2 as adam_atan2
from widthwise.optim.follow_alignment import FollowAlignmentState as FollowAlignmentState
from widthwise.optim.follow_alignment import follow_alignment as follow_alignment
from widthwise.optim.muon import Share
from widthwise.optim.muon import muon as muon
from widthwise.optim.parameter_scaling import adam_ps as adam_ps
from widthwise.optim.rates import Number
from widthwise.optim.schedule import warmup_cosine as warmup_cosine
from widthwise.optim.sgd import sgd as sgd
from widthwise.parameterize import Layout, Prescription, PyTree, Scales
from widthwise.theory import ADAFACTOR, ADAM, MUON_FACTORS, SGD, Family, with_adam


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """An optimizer by name, for code that works with any of them.

    Attributes:
        name: Its name.
        family: Its family, which determines how rates scale with width.
        make: The function that creates it.
        epsilon: The default epsilon; None if it has no epsilon.
        b2: The default decay of the second moment; None if it has no such number.
        epsilon_power: The power of the scales' factor on epsilon: 2 if epsilon is added to squared gradients.
        by_layer: Whether it needs a layout because it computes statistics per layer.
        orthogonalizes: Whether it orthogonalizes the updates of hidden matrices, which takes matrix products.
    """

    name: str
    family: Family
    make: Callable[..., optax.GradientTransformation]
    epsilon: float | None = None
    b2: float | None = None
    epsilon_power: int = 1
    by_layer: bool = False
    orthogonalizes: bool = False

    def build(
        self,
        learning_rate: Number,
        plan: Prescription | Scales,
        layout: Layout | None = None,
        *,
        epsilon: Number | None = None,
        b2: float | None = None,
        weight_decay: Number | PyTree = 0.0,
        schedule: optax.Schedule | None = None,
        dtype: str | None = None,
        share: Share | None = None,
    ) -> optax.GradientTransformation:
        """Create the optimizer with the options that all of them share, and with an epsilon and a b2 if it has them.

        Matrix products, if there are any, are computed in `dtype`, by default in that of the parameters; `share` tells
        how devices that have parts of the matrices share them.
        """
        options = {"weight_decay": weight_decay, "schedule": schedule}
        if epsilon is not None:
            if self.epsilon is None:
                raise ValueError(f"epsilon is {epsilon} but {self.name} has no epsilon")
            options["epsilon"] = epsilon
        if b2 is not None:
            if self.b2 is None:
                raise ValueError(f"b2 is {b2} but {self.name} has no b2")
            options["b2"] = b2
        if self.by_layer:
            options["layout"] = layout
        if self.orthogonalizes:
            options |= {"dtype": dtype, "share": share}
        return self.make(learning_rate, plan, **options)


OPTIMIZERS = MappingProxyType(
    {
        optimizer.name: optimizer
        for optimizer in (
            Optimizer(name="sgd", family=SGD, make=sgd),
            Optimizer(name="adam", family=ADAM, make=adam, epsilon=ADAM_EPSILON, b2=ADAM_B2),
            Optimizer(name="adam_atan2", family=ADAM, make=adam_atan2, b2=ADAM_B2),
            Optimizer(name="adam_ps", family=ADAFACTOR, make=adam_ps, epsilon=ADAM_EPSILON, b2=ADAM_B2, by_layer=True),
            Optimizer(
                name="adafactor",
                family=ADAFACTOR,
                make=adafactor,
                epsilon=ADAFACTOR_EPSILON,
                epsilon_power=2,
                by_layer=True,
            ),
            *(
                Optimizer(
                    name=family.name,
                    family=with_adam(family),
                    make=functools.partial(muon, factor=factor),
                    epsilon=ADAM_EPSILON,
                    b2=ADAM_B2,
                    by_layer=True,
                    orthogonalizes=True,
                )
                for factor, family in MUON_FACTORS.items()
            ),
        )
    }
)
"""The optimizers by name.

Those named after Muon are mixtures: orthogonalized updates for hidden matrices, Adam for everything else. They differ
in the factor on orthogonalized updates: √max(1, out/in) (`muon`), √(out/in) (`muon_out_in`), √max(out, in)
(`muon_max`).
"""
