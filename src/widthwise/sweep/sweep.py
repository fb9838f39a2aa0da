"""A sweep as a value: what to vary around one specification, and how learning rates are searched.

It falls into *groups*: everything but width, learning rate and seed is fixed in a group, and one power law of the
optimal learning rate against width is read from each. What a group is called (its constants, its horizon) is kept with
every run asked for, because it cannot be read off the numbers: 877 steps may be fixed or compute-optimal.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias, get_args

from widthwise.models import Transformer, compute_optimal_steps
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Constants
from widthwise.sweep.canonical import encode, key
from widthwise.sweep.constants import DEFAULT
from widthwise.sweep.records import Horizon
from widthwise.sweep.search import Grid, Lattice, Search
from widthwise.theory import FULL, PARAMETERIZATIONS, solve
from widthwise.train.spec import GLOBAL, Spec

NamedConstants: TypeAlias = Callable[[str, str, str], Constants]
"""Looks constants up by their name, an optimizer and a parameterization."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in width, learning rate and seed alone.

    Attributes:
        spec: What they share; its width, learning rate and seed do not matter, nor its steps if compute-optimal.
        constants: What its constants are called.
        horizon: Fixed or compute-optimal.
    """

    spec: Spec
    constants: str = DEFAULT
    horizon: Horizon = "fixed"

    def at(self, *, width: int, learning_rate: float, seed: int, vocabulary: int) -> Spec:
        """Give one of its runs, for data with this vocabulary."""
        spec = replace(self.spec, width=width, learning_rate=learning_rate, seed=seed)
        if self.horizon == "fixed":
            return spec
        model = Transformer(
            width=width,
            blocks=spec.blocks,
            head_dim=spec.head_dim,
            context=spec.context,
            vocabulary=spec.vocabulary or vocabulary,
        )
        return replace(spec, steps=compute_optimal_steps(model, batch=spec.batch))

    @property
    def title(self) -> str:
        """What it is called by, in a line."""
        spec, horizon = self.spec, self.horizon.replace("_", "-")
        setting = spec.rates or spec.alignment
        return f"{spec.parameterization}, {spec.optimizer}, {setting}, {self.constants} constants, {horizon} horizon"

    @property
    def names(self) -> dict[str, Any]:
        """What is kept with each run asked for, beside its specification."""
        return {"constants": self.constants, "horizon": self.horizon}

    def start(self, base: Spec) -> float:
        """Give the learning rate to start looking at: the base's, moved to this group's parameterization.

        A hidden layer that moves from multiplier n^-a to n^-(a + θ) trains as before at another rate.
        """
        apart = self._hidden_multiplier(self.spec) - self._hidden_multiplier(base)
        family = OPTIMIZERS[self.spec.optimizer].family
        return base.learning_rate * base.base_width ** float(apart * family.rate_correction)

    @staticmethod
    def _hidden_multiplier(spec: Spec) -> Fraction:
        return PARAMETERIZATIONS[spec.parameterization].hidden[0].a

    @property
    def expected_exponent(self) -> float:
        """How the theory lets the base learning rate change with width: where to start looking, no more."""
        if self.spec.setting != GLOBAL:
            return 0.0  # the exponents are in the rates of the layers
        # One rate serves all layers, so it has to fall with the layer whose rate must fall most.
        family = OPTIMIZERS[self.spec.optimizer].family
        rates = solve(PARAMETERIZATIONS[self.spec.parameterization], family, FULL).rates
        assert rates is not None
        return float(min(-rate for rate in rates))


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What to train: a specification, and several values for parts of it; the specification's own where there are none.

    >>> sweep = Sweep(base=Spec(), widths=(64, 128), settings=("global", "full"), seeds=(0, 1))
    >>> [group.spec.setting for group in sweep.groups()]
    ['global', 'full']
    >>> Sweep.from_json(sweep.to_json()) == sweep
    True
    """

    base: Spec
    """What all runs share, and where the search for learning rates starts at the smallest width.

    Groups in another parameterization start where the theory moves that rate.
    """
    widths: tuple[int, ...] = ()
    """Widths."""
    parameterizations: tuple[str, ...] = ()
    """Parameterizations."""
    optimizers: tuple[str, ...] = ()
    """Optimizers."""
    settings: tuple[str, ...] = ()
    """Alignments, global, or exponents of one's own such as 0,-1,-1."""
    constants: tuple[str, ...] = ()
    """Names of constants: default, or what tuning called them."""
    epsilons: tuple[float, ...] = ()
    """Base epsilons, for optimizers that have one."""
    epsilons_per_parameter: tuple[bool, ...] = ()
    """Whether epsilon follows the gradients' exponents; again for optimizers that have one."""
    weight_decays: tuple[float, ...] = ()
    """Weight decays."""
    horizons: tuple[Horizon, ...] = ("fixed",)
    """Training for a fixed number of steps, or for 20 tokens for each parameter."""
    seeds: tuple[int, ...] = ()
    """Seeds of the initialization; each learning rate is tried with all of them."""
    search: Lattice = dataclasses.field(default_factory=Search)
    """Which learning rates to try: a search or a grid."""

    def __post_init__(self) -> None:
        for name in _AXES:
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} are {', '.join(map(str, values))}: expected each once")
        for horizon in self.horizons:
            if horizon not in get_args(Horizon):
                raise ValueError(f"horizon is {horizon!r}: expected one of {', '.join(get_args(Horizon))}")
        if not self.horizons:
            raise ValueError("no horizons: expected one or more")
        own = (self.base.embedding_constant, self.base.hidden_constant, self.base.readout_constant)
        if self.constants and own != (1.0, 1.0, 1.0):
            raise ValueError(f"constants are given by name and by value, {own}: expected one of the two")
        for width in self.all_widths:
            for group in self.groups(constants=lambda *_: Constants()):
                replace(group.spec, width=width)  # refuses what no run could have

    @property
    def all_widths(self) -> tuple[int, ...]:
        """The widths, ascending."""
        return tuple(sorted(self.widths or (self.base.width,)))

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return self.seeds or (self.base.seed,)

    @property
    def id(self) -> str:
        """The hash of what it asks for."""
        return key(encode(self.to_json()))

    def groups(self, constants: NamedConstants | None = None) -> list[Group]:
        """Give the groups, each once.

        Args:
            constants: Looks up constants by name; may be left out where there are none but the default.
        """
        base = self.base
        axes = itertools.product(
            self.parameterizations or (base.parameterization,),
            self.optimizers or (base.optimizer,),
            self.settings or (base.rates or base.alignment,),
            self.constants or (None,),
            self.epsilons or (base.epsilon,),
            self.epsilons_per_parameter or (base.epsilon_per_parameter,),
            self.weight_decays or (base.weight_decay,),
            self.horizons,
        )
        found: dict[Group, None] = {}
        for parameterization, optimizer, setting, name, epsilon, per_parameter, decay, horizon in axes:
            has_epsilon = OPTIMIZERS[optimizer].epsilon is not None if optimizer in OPTIMIZERS else True
            spec = replace(
                base,
                width=self.all_widths[0],
                parameterization=parameterization,
                optimizer=optimizer,
                epsilon=epsilon if has_epsilon else None,
                epsilon_per_parameter=per_parameter and has_epsilon,
                weight_decay=decay,
                **_rates(setting, base),
            )
            if name is not None and name != DEFAULT:
                if constants is None:
                    raise ValueError(f"constants {name!r} have a name: expected a study to look it up in")
                looked_up = constants(name, optimizer, parameterization)
                spec = replace(
                    spec,
                    embedding_constant=looked_up.embedding,
                    hidden_constant=looked_up.hidden,
                    readout_constant=looked_up.readout,
                )
            found[Group(spec=spec, constants=name or _name_of(spec), horizon=horizon)] = None
        return list(found)

    def to_json(self) -> dict[str, Any]:
        """Give the sweep as values that `json.dumps` takes."""
        axes = {name: list(getattr(self, name)) for name in _AXES}
        kind = "grid" if isinstance(self.search, Grid) else "search"
        return {"base": self.base.to_json(), **axes, kind: dataclasses.asdict(self.search)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Sweep":
        """Read a sweep; refuse what it does not know."""
        known = {"base", "search", "grid", *_AXES}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"{unknown[0]!r} is not part of a sweep: expected {', '.join(sorted(known))}")
        if {"search", "grid"} <= set(values):
            raise ValueError("both 'search' and 'grid' in a sweep: expected one of them")
        axes = {name: tuple(values[name]) for name in _AXES if name in values}
        kind = Grid if "grid" in values else Search
        lattice = values.get("grid", values.get("search", {}))
        fields = [field.name for field in dataclasses.fields(kind)]
        if unknown := sorted(set(lattice) - set(fields)):
            raise ValueError(f"{unknown[0]!r} is not part of a {kind.__name__.lower()}: expected {', '.join(fields)}")
        return cls(base=Spec.from_json(values.get("base", {})), search=kind(**lattice), **axes)


_AXES: Sequence[str] = [field.name for field in dataclasses.fields(Sweep) if field.name not in ("base", "search")]


def _rates(setting: str, base: Spec) -> dict[str, Any]:
    """Say where learning rates come from: exponents of one's own have commas, an alignment has not."""
    if "," in setting:
        return {"rates": setting, "alignment": base.alignment}
    return {"rates": None, "alignment": setting}


def _name_of(spec: Spec) -> str:
    """Call constants given by value by their values."""
    values = (spec.embedding_constant, spec.hidden_constant, spec.readout_constant)
    return DEFAULT if values == (1.0, 1.0, 1.0) else ",".join(f"{value:g}" for value in values)
