"""`widthwise transfer`: the hyperparameters of a larger model, from those of a tuned one."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from widthwise.cli.arguments import count, named, naming_options, positive, unset
from widthwise.cli.corrections import RULE_OF, has_rule, read_corrections
from widthwise.cli.output import table
from widthwise.scaling.grown import Grown
from widthwise.scaling.hyperparameters import Growth, Hyperparameter, TunedValues, target_hyperparameters
from widthwise.scaling.orthogonal import has_muon
from widthwise.study.axes import TOGETHER
from widthwise.theory import (
    ADAM,
    ALIGNMENTS,
    ALL_FAMILIES,
    BATCH_RULES,
    DECAY_RULES,
    FULL,
    INDEPENDENT,
    MUON_FACTORS,
    MUP,
    PARAMETERIZATIONS,
    TOKEN_RULES,
    Alignment,
    DecayRule,
    Family,
    Parameterization,
    Role,
    solve,
    with_adam,
)

_CALLED = {"batch": "batch size", "tokens": "number of tokens"}
_NAMED = {"batch": BATCH_RULES, "tokens": TOKEN_RULES}


@dataclass(frozen=True, kw_only=True)
class TransferCommand:
    """Print every hyperparameter of a larger model, from those of a tuned one, and where each comes from.

    The tuned model has the --base-... sizes. Sizes that are left out do not grow. Initial sizes are factors on those of
    the tuned model, and all multipliers are stored in the parameters. With --study, learning rates are corrected by the
    exponents that sweeps with the same rules measured, and have intervals. With Muon, Adam trains all but the hidden
    matrices, as in plans.
    """

    learning_rate: Annotated[float, positive("X")]
    """The tuned learning rate."""
    epsilon: Annotated[float | None, unset("none")] = None
    """The tuned epsilon."""
    weight_decay: Annotated[float | None, unset("none")] = None
    """The tuned decay: the part of a weight that a step removes, which is the learning rate times AdamW's; at most
    0.05."""
    b2: Annotated[float | None, unset("none")] = None
    """The tuned beta2."""
    width: Annotated[int | None, count("N", least=1), unset("--base-width")] = None
    """The width of the target."""
    base_width: Annotated[int, count("N", least=1)] = 128
    """The width of the tuned model."""
    depth: Annotated[int | None, count("N", least=1), unset("that of the tuned model")] = None
    """The number of blocks of the target."""
    base_depth: Annotated[int | None, count("N", least=1), unset("none")] = None
    """The number of blocks of the tuned model."""
    batch: Annotated[int | None, count("N", least=1), unset("that of the tuned model")] = None
    """The batch size of the target."""
    base_batch: Annotated[int | None, count("N", least=1), unset("none")] = None
    """The batch size of the tuned model."""
    tokens: Annotated[int | None, count("N", least=1, most=10**15), unset("those of the tuned model")] = None
    """The number of tokens to train the target on."""
    base_tokens: Annotated[int | None, count("N", least=1, most=10**15), unset("none")] = None
    """The number of tokens that the tuned model was trained on."""
    parameterization: Annotated[Parameterization, named(PARAMETERIZATIONS)] = MUP
    """The parameterization, which decides how the readout starts."""
    optimizer: Annotated[Family, named(ALL_FAMILIES)] = ADAM
    """The family of optimizers."""
    alignment: Annotated[Alignment, named(ALIGNMENTS)] = FULL
    """The alignment assumed for the learning rates."""
    decay_rule: Annotated[DecayRule, named(DECAY_RULES)] = INDEPENDENT
    """How weight decay changes with width."""
    depth_rule: str = "completep"
    """What changes with depth: completep, sqrt, constant, or your own power of residual branches."""
    batch_rule: str = "constant"
    """What changes with the batch size: sde, sde2, sqrt, timescale, scion, constant, or your own power of the rate."""
    token_rule: str = "constant"
    """What changes with the number of tokens: horizon, timescale, scion, constant, or your own power of the rate."""
    study: Annotated[tuple[Path, ...], unset("none")] = ()
    """Folders of studies with sweeps along the axes that grow. The one with the rules given here counts, and its
    exponent is used as measured."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Print the hyperparameters."""
        with naming_options(vars(self)):
            growth = self._growth()
            corrections = read_corrections(self.study, growth.ratios, self._options(growth))
            growth = replace(growth, measured=corrections.exponents)
            tuned = TunedValues(
                learning_rate=self.learning_rate, epsilon=self.epsilon, weight_decay=self.weight_decay, b2=self.b2
            )
            found = list(target_hyperparameters(tuned, growth))
        notes = [*self._notes(growth), *corrections.notes]
        print(json.dumps(_to_json(found, growth, notes), indent=2) if self.json else _tabulate(found, growth, notes))
        return 0

    def _growth(self) -> Growth:
        sizes: dict[str, int | None] = {}
        for axis in RULE_OF:
            here, base = getattr(self, axis), getattr(self, f"base_{axis}")
            if base is None and here is not None:
                raise ValueError(f"--base-{axis} is missing: expected that of the tuned model beside --{axis} {here}")
            sizes |= {axis: base if here is None else here, f"base_{axis}": base}
        muon = [family for family in MUON_FACTORS.values() if family == self.optimizer]
        return Growth(
            case=solve(self.parameterization, with_adam(muon[0]) if muon else self.optimizer, self.alignment),
            width=self.width or self.base_width,
            base_width=self.base_width,
            grown=Grown.read(
                depth_rule=self.depth_rule, batch_rule=self.batch_rule, token_rule=self.token_rule, **sizes
            ),
            decay_rule=self.decay_rule,
        )

    def _options(self, growth: Growth) -> dict[str, str]:
        """Return the options that a sweep has too."""
        return {
            "--parameterization": self.parameterization.name,
            "--alignment": self.alignment.name,
            "--optimizer": growth.case.family.name,
            "--decay-rule": self.decay_rule.name if self.weight_decay else "none",
            "--depth-rule": self.depth_rule,
            "--batch-rule": self.batch_rule,
            "--token-rule": self.token_rule,
        }

    def _notes(self, growth: Growth) -> Iterator[str]:
        """Yield what a user should know about the options beside what was asked for."""
        options, family = self._options(growth), growth.case.family
        trained_by = list(dict.fromkeys(family.at(role).name for role in (Role.HIDDEN, Role.EMBEDDING)))
        if has_muon(family):
            muon, adam = trained_by
            yield (
                f"{muon} trains the matrices in blocks, and {adam} the rest; their tuned learning rates usually "
                "differ: run this with each of them, and read the rows of that optimizer"
            )
        if self.weight_decay and any(self.decay_rule.power(role) is None for role in Role):
            yield f"--decay-rule {self.decay_rule.name}: {self.decay_rule.title}"
        for axis, called in _CALLED.items():
            option = RULE_OF[axis]
            name = options[option]
            known_for = "Scion" if name == "scion" else "Adam"
            others = [each for each in trained_by if each != known_for.lower()]
            if has_rule(option, name) and growth.ratios[axis] == 1:
                yield f"{option} {name} changes nothing: the target has the {called} of the tuned model"
            elif has_rule(option, name) and name in _NAMED[axis] and others:
                yield f"{option} {name} was derived for {known_for}: for {' and '.join(others)} it is a guess"


def _tabulate(found: Sequence[Hyperparameter], growth: Growth, notes: Sequence[str]) -> str:
    mixed = len({each.optimizer for each in found}) > 1
    headings = ("parameters", "optimizer", "hyperparameter", "tuned", "target", "95 % interval", "because of")
    rows = [
        (
            *(each.of if each.of != before else "", each.optimizer if each.of != before else ""),
            each.name,
            f"{each.base:.4g}",
            f"{each.target:.4g}",
            "" if each.interval is None else f"{each.interval[0]:.3g} to {each.interval[1]:.3g}",
            " ".join(map(str, each.origins)) or "–",
        )
        for before, each in zip(["", *(each.of for each in found)], found, strict=False)
    ]
    shown = [place for place, heading in enumerate(headings) if mixed or heading != "optimizer"]
    right = [position for position, place in enumerate(shown) if headings[place] in ("tuned", "target")]
    lines = [
        f"{axis} x {ratio:g}: {growth.rules[axis]}"
        + (f"; measured exponent {growth.measured[axis]}" if axis in growth.measured else "")
        for axis, ratio in growth.ratios.items()
        if ratio != 1
    ]
    if (joint := growth.measured.get(TOGETHER.name)) is not None:
        lines.append(f"all of them: measured exponent {joint} of the width")
    drawn = table([headings[place] for place in shown], [[row[place] for place in shown] for row in rows], right=right)
    return "\n".join([drawn, *lines, *(f"note: {note}" for note in notes)])


def _to_json(found: Sequence[Hyperparameter], growth: Growth, notes: Sequence[str]) -> dict[str, Any]:
    return {"ratios": growth.ratios, "hyperparameters": [each.to_json() for each in found], "notes": notes}
