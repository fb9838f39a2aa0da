"""Parameter groups: the factors of a plan in the form that every optimizer of PyTorch takes.

PyTorch's AdamW and SGD multiply weight decay by the learning rate of the group. The decay of a group is therefore
divided by its factor on the learning rate, so that a step removes the part of a weight that the plan's rule says: by
default, the same at every width. The same holds for `torch.optim.Muon`, which multiplies decay by the learning rate
before its own factor.

Muon takes matrices only, so a plan for it is for two optimizers, or for one class that contains both. Their groups are
asked for one by one, since their learning rates differ. Groups of Muon name the factor that the plan was made for.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from widthwise.scaling import Factors, Parameter
from widthwise.scaling.decay import MOST_DECAY
from widthwise.scaling.orthogonal import family_of, formula_of, has_muon
from widthwise.theory import ADAFACTOR, ADAM, Family, OptimizerFamily
from widthwise.torch.sizes import check_shape
from widthwise.torch.watch import FACTOR, FAMILY, watch

EPSILON = 1e-8
ADAFACTOR_EPSILON = 1e-30
MUON_EPSILON = 1e-7
FLOOR = 1e-3

ADJUST = {"sqrt(max(1,out/in))": "original", "sqrt(max(out,in))": "match_rms_adamw"}
"""What `torch.optim.Muon` calls the factors that it has."""


def make_groups(
    found: Mapping[str, nn.Parameter],
    parameters: Sequence[Parameter],
    factors: Mapping[str, Factors],
    family: Family,
    *,
    width: int,
    lr: float,
    weight_decay: float,
    eps: float | None,
    betas: tuple[float, float] | None,
    decays: Callable[[str], bool] | None,
    of: str | None = None,
) -> list[dict[str, Any]]:
    """Return the groups of the parameters that are trained; see `TorchPlan.groups`."""
    _refuse_mixture(family, parameters, of)
    if of is not None:
        parameters = [about for about in parameters if family_of(about, family).isometric == (of == "muon")]
    _refuse_bad_rate(
        lr, weight_decay, eps or 0.0, max((factors[about.path].decay for about in parameters), default=1.0)
    )
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for about in parameters:
        parameter, factor = found[about.path], factors[about.path]
        if parameter.ndim == len(about.shape) > 1:  # wrappers that shard may leave flat pieces of parameters
            check_shape(about, parameter, width)
        own = family_of(about, family)
        if not parameter.requires_grad:
            continue
        decayed = bool(weight_decay) and (not about.is_vector if decays is None else decays(about.path))
        options: dict[str, Any] = {
            "lr": lr * factor.learning_rate,
            "weight_decay": weight_decay * factor.decay / factor.learning_rate if decayed else 0.0,
            FACTOR: factor.learning_rate,
            FAMILY: own.name,
            **_epsilons(own, factor, eps),
        }
        if betas is not None and own == ADAM:
            options["betas"] = betas
        if of is not None:
            options["use_muon"] = own.isometric
        if own.isometric:
            options["adjust_lr_fn"] = ADJUST.get(formula_of(family), formula_of(family))
        group = groups.setdefault(tuple(options.items()), {"params": [], **options})
        group["params"].append(parameter)
        if own == ADAFACTOR:
            group.setdefault("axes", []).append([list(about.axes.inputs), list(about.axes.outputs)])
    watch()
    return list(groups.values())


def _epsilons(family: OptimizerFamily, factor: Factors, eps: float | None) -> dict[str, float]:
    if family == ADAFACTOR:  # which adds epsilon to squares
        eps = ADAFACTOR_EPSILON if eps is None else eps
        return {"eps": eps * factor.epsilon**2, "floor": FLOOR * factor.floor}
    if family.gradient_power:
        return {}
    return {"eps": ((MUON_EPSILON if family.isometric else EPSILON) if eps is None else eps) * factor.epsilon}


def _refuse_mixture(family: Family, parameters: Sequence[Parameter], of: str | None) -> None:
    """Raise unless the groups that are asked for go to one optimizer."""
    if of not in (None, "muon", "adam"):
        raise ValueError(f"of is {of!r}: expected 'muon' or 'adam'")
    if not has_muon(family):
        if of is not None:
            raise ValueError(f"of is {of!r}, but the plan is for {family.name} alone: plan with optimizer='muon'")
        return
    muon = [p.path for p in parameters if family_of(p, family).isometric]
    if not muon:
        raise ValueError(
            "no parameter is a hidden matrix with two axes, which Muon could train: plan with optimizer='adamw', or "
            "name others that your Muon takes with Rule(muon=True)"
        )
    if of is None:
        raise ValueError(
            f"Muon trains {muon[0]!r}, and Adam what is no hidden matrix: expected of='muon' for the groups of one, "
            "of='adam' for those of the other"
        )


def _refuse_bad_rate(lr: float, weight_decay: float, eps: float, growth: float) -> None:
    for name, value in (("lr", lr), ("weight_decay", weight_decay), ("eps", eps)):
        if not 0 <= value < float("inf"):
            raise ValueError(f"{name} is {value}: expected a number from 0 up")
    if (part := lr * weight_decay * growth) > MOST_DECAY:
        factor = "" if growth == 1 else f" · {growth:.4g}"
        raise ValueError(
            f"a step would remove lr · weight_decay{factor} = {part:.2g} of every weight: expected at most {MOST_DECAY}"
        )
