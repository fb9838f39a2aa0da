"""What a user asks of a plan: the exponents by name, and checks that hold in every framework."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from widthwise.scaling.orthogonal import refuse_muon_alone
from widthwise.scaling.parameters import Parameter, Part
from widthwise.theory import (
    ALIGNMENTS,
    DIRECTIONS,
    MUON_FACTORS,
    PARAMETERIZATIONS,
    Alignment,
    Assessment,
    Family,
    Parameterization,
    solve,
    with_adam,
)


def _short(mixed: Family) -> str:
    return mixed.name.removesuffix("+adam")


FAMILY_OF: Mapping[str, Family] = MappingProxyType(
    {
        **{d.name: d.family for d in DIRECTIONS if d.by_name},
        **{name: mixed for mixed in map(with_adam, MUON_FACTORS.values()) for name in (_short(mixed), mixed.name)},
    }
)
"""The families of optimizers by name.

Those who say Muon mean the mixture: its authors leave embeddings, readouts and vectors to Adam, and vectors have no
orthogonalized updates. So "muon" is "muon+adam" here.
"""


def check_widths(**widths: int) -> None:
    """Raise unless all widths are whole numbers from 1 up."""
    for name, value in widths.items():
        if not isinstance(value, int) or value < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{name} is {value!r}: expected a whole number from 1 up")


def check_takes_depth(build: Callable[..., Any], depth: int | None) -> None:
    """Raise if `build` is given a depth that it does not take, or takes one that it is not given."""
    try:
        parameters = inspect.signature(build).parameters
    except (TypeError, ValueError):
        return  # some functions that are not written in Python have none
    taken = parameters.get("depth")
    if depth is None:
        if taken is not None and taken.default is taken.empty:
            raise ValueError("build takes a depth: expected depth= and base_depth=, which may be the same")
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    if taken is None or taken.kind in (taken.POSITIONAL_ONLY, taken.VAR_POSITIONAL):
        names = ", ".join(parameters)
        raise ValueError(f"build({names}) takes no argument called depth: expected one, which depth= is passed as")


def find_exponents(
    parameterization: Parameterization | str,
    optimizer: Family | str,
    alignment: Alignment | str,
    exponents: Assessment | None,
) -> Assessment:
    """Return the exponents asked for, by name or as values; raise if the network is unstable at initialization."""
    if exponents is None:
        exponents = solve(
            _named(parameterization, PARAMETERIZATIONS, "parameterization"),
            _named(optimizer, FAMILY_OF, "optimizer"),
            _named(alignment, ALIGNMENTS, "alignment"),
        )
    refuse_muon_alone(exponents.family)
    if exponents.rates is None:
        broken = "; ".join(str(constraint) for constraint in exponents.broken)
        raise ValueError(f"{exponents.parameterization.name!r} is unstable at initialization: {broken}")
    return exponents


def at_base_width(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """Return parameters as they are at the base width, where nothing has grown."""
    same = Fraction(1)
    return tuple(
        replace(
            p,
            shape=p.base_shape,
            fan_in=int(p.fan_in / p.grows_in),
            grows_in=same,
            grows_out=same,
            grows_head=same,
        )
        for p in parameters
    )


def refuse_inner_readouts(parameters: tuple[Parameter, ...], family: Family) -> None:
    """Raise if updates are proportional to the gradient of an inner readout, which no rate follows."""
    inner = [parameter.path for parameter in parameters if parameter.part is Part.INNER_READOUT]
    if inner and family.gradient_power:
        raise ValueError(
            f"{inner[0]!r} has inputs that grow and a fixed number of outputs that later layers use. Its gradient "
            f"changes with width in a way that no learning rate of {family.name} follows: expected an optimizer that "
            "normalizes gradients, such as adamw, or outputs that grow with the width"
        )


def _named(value: Any, known: Mapping[str, Any], what: str) -> Any:
    if not isinstance(value, str):
        return value
    if value not in known:
        raise ValueError(f"{what} is {value!r}: expected one of {', '.join(known)}")
    return known[value]
