"""A sweep as a value: which settings, sizes and seeds to train, and how learning rates are searched."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from widthwise.models import compute_optimal_steps
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Constants
from widthwise.search.lattice import AdaptiveSearch, Grid, Lattice
from widthwise.search.rounds import GroupSearch, check_precision
from widthwise.study.axes import AXES, TOGETHER, TOKENS, WIDTH
from widthwise.study.encoding import encode, key
from widthwise.study.setting import DEFAULT, Setting
from widthwise.sweeps.settings import apply
from widthwise.theory import FULL, PARAMETERIZATIONS, Global, Role, solve
from widthwise.train import Spec

ConstantsLookup: TypeAlias = Callable[[str, str, str], Constants]
"""Returns the constants of a name, an optimizer and a parameterization."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What to train: settings and widths, or sizes along another axis, around one specification.

    >>> sweep = Sweep(base=Spec(), widths=(64, 128), settings=(Setting(rates=Global()), Setting()), seeds=(0, 1))
    >>> [setting.rates.name for setting in sweep.all_settings]
    ['global', 'full']
    """

    base: Spec
    """What all runs share. Its learning rate is where the search starts at the smallest width; a setting in another
    parameterization starts where the theory moves that rate."""
    settings: tuple[Setting, ...] = ()
    """The settings; the base's own if empty."""
    widths: tuple[int, ...] = ()
    """The widths; the base's own if empty."""
    axis: str = WIDTH.name
    """What grows: width, depth, batch, tokens, or all of them together."""
    values: tuple[int, ...] = ()
    """The sizes along an axis other than width; the base's own if empty."""
    seeds: tuple[int, ...] = ()
    """Seeds of the initialization: each learning rate is tried with all of them. With a precision, each optimum is, and
    more are added as needed."""
    search: Lattice = dataclasses.field(default_factory=AdaptiveSearch)
    """Which learning rates to try: a search or a grid."""
    edge: bool = False
    """Also locate the stability edge of every width, the largest rate that trains well."""
    precision: float | None = None
    """Train until the interval of every setting's exponent reaches at most this far to each side."""
    until_verdict: bool = False
    """Stop before that at settings for which it is clear whether the learning rate transfers."""
    loss_seeds: int = 0
    """Train at least this many seeds at the optima of the smallest and largest width."""

    def __post_init__(self) -> None:
        if self.axis not in AXES:
            raise ValueError(f"axis is {self.axis!r}: expected one of {', '.join(AXES)}")
        unused = "values" if self.axis == WIDTH.name else "widths"
        if getattr(self, unused):
            used = "widths" if unused == "values" else "values"
            raise ValueError(f"{unused} are given but the axis is {self.axis}: expected {used}")
        if min(self.values, default=1) < 1:
            raise ValueError(f"values are {', '.join(map(str, self.values))}: expected 1 or more")
        for name in ("settings", "widths", "values", "seeds"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                written = ", ".join(value.title if isinstance(value, Setting) else str(value) for value in values)
                raise ValueError(f"{name} are {written}: expected each once")
        if len(set(self.all_sizes)) < len(self.values):
            raise ValueError(f"values are {', '.join(map(str, self.values))}: some of them take the same steps")
        check_precision(self.precision, self.all_sizes, until_verdict=self.until_verdict, axis=self.axis)
        if self.precision is not None and not isinstance(self.search, AdaptiveSearch):
            raise ValueError("both a precision and a grid: expected one of them")
        if self.loss_seeds < 0:
            raise ValueError(f"loss_seeds is {self.loss_seeds}: expected 0 or more")
        for seed in self.seeds:
            replace(self.base, seed=seed)  # refuses what no run could have, as the last line does
        own = Setting.of(self.base.to_json()).constants
        for setting in self.all_settings:
            if own not in (DEFAULT, setting.constants):
                raise ValueError(f"constants are given by name and by value, {own}: expected one of the two")
            if self.axis in (TOKENS.name, TOGETHER.name) and setting.horizon != "fixed":
                raise ValueError(f"horizon is {setting.horizon} but the axis is {self.axis}: expected fixed")
            for size in self.all_sizes:
                apply(setting, self._at(size), self.base.constants)  # refuses what no run could have

    @property
    def all_settings(self) -> tuple[Setting, ...]:
        """The settings, each once."""
        return self.settings or (Setting.of(self.base.to_json()),)

    @property
    def all_sizes(self) -> tuple[int, ...]:
        """The widths, or other sizes, ascending; numbers of tokens are those of whole steps."""
        base, axis = vars(self.base), AXES[self.axis]
        asked = self.widths or self.values or (axis.size(base),)
        return tuple(sorted(axis.size({**base, **axis.change(base, size)}) for size in asked))

    @property
    def names(self) -> dict[str, str]:
        """What a study keeps with every request: the axis, unless it is width."""
        return {} if self.axis == WIDTH.name else {"axis": self.axis}

    def _at(self, size: int) -> Spec:
        return replace(self.base, **AXES[self.axis].change(vars(self.base), size))

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return self.seeds or (self.base.seed,)

    @property
    def id(self) -> str:
        """The hash of everything that it asks for."""
        return key(encode(self.to_json()))

    def constants(self, look_up: ConstantsLookup) -> dict[Setting, Constants]:
        """Return the constants of every setting; those with a name are looked up."""
        return {
            setting: self.base.constants
            if setting.constants == Setting.of(self.base.to_json()).constants
            else look_up(setting.constants, setting.optimizer, setting.parameterization)
            for setting in self.all_settings
        }

    def spec(
        self,
        setting: Setting,
        *,
        size: int,
        learning_rate: float,
        seed: int,
        vocabulary: int,
        constants: Constants,
    ) -> Spec:
        """Return the specification of one run, for data with this vocabulary."""
        base = replace(self._at(size), learning_rate=learning_rate, seed=seed)
        spec = apply(setting, base, constants)
        if setting.horizon == "fixed":
            return spec
        return replace(spec, steps=compute_optimal_steps(spec.transformer(vocabulary), batch=spec.batch))

    def group_search(self, setting: Setting, cost: Callable[[int], float]) -> GroupSearch:
        """Return the search of one of the settings; `cost` returns the FLOPs of a run of a size."""
        return GroupSearch(
            search=self.search,
            widths=self.all_sizes,
            seeds=self.all_seeds,
            start=self.search.index(self.start(setting)),
            exponent=expected_exponent(setting) if WIDTH.fields <= AXES[self.axis].fields else 0.0,
            cost=cost,
            edge=self.edge,
            precision=self.precision,
            until_verdict=self.until_verdict,
            loss_seeds=self.loss_seeds,
        )

    def start(self, setting: Setting) -> float:
        """Return the learning rate to start at: the base's, moved to the setting's parameterization.

        A hidden layer whose multiplier changes from n^-a to n^-(a + θ) trains as before at another rate.
        """
        before, after = (
            PARAMETERIZATIONS[name].hidden[0].a for name in (self.base.parameterization, setting.parameterization)
        )
        family = OPTIMIZERS[setting.optimizer].family.at(Role.HIDDEN)
        return self.base.learning_rate * self.base.base_width ** float((after - before) * family.rate_correction)

    def to_json(self) -> dict[str, Any]:
        """Return the sweep as values that `json.dumps` takes."""
        return {
            "base": self.base.to_json(),
            "settings": [setting.to_json() for setting in self.all_settings],
            **({"widths": list(self.all_sizes)} if not self.names else {**self.names, "values": list(self.all_sizes)}),
            "seeds": list(self.all_seeds),
            "grid" if isinstance(self.search, Grid) else "search": dataclasses.asdict(self.search),
            "edge": self.edge,
            "precision": self.precision,
            "until_verdict": self.until_verdict,
            **({"loss_seeds": self.loss_seeds} if self.loss_seeds else {}),
        }


def expected_exponent(setting: Setting) -> float:
    """Return how the theory lets the base learning rate change with width: where to start looking, no more."""
    if not isinstance(setting.rates, Global):
        return 0.0  # the exponents are in the rates of the layers
    # One rate serves all layers, so it has to fall with the layer whose rate must fall most.
    rates = solve(PARAMETERIZATIONS[setting.parameterization], OPTIMIZERS[setting.optimizer].family, FULL).rates
    assert rates is not None
    return float(min(-rate for rate in rates))
