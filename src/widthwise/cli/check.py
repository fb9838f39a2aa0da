"""`widthwise check`: whether activations keep their size as the network gets wider, and if not, what to change."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from widthwise.cli.arguments import count, named, positive, unset
from widthwise.cli.running import FAILED, StatusLine
from widthwise.cli.runs import open_data
from widthwise.measure import Subject, check_coordinates, check_depths
from widthwise.measure.coordinates import DEPTHS, SEEDS, STEPS, TOLERANCE, WIDTHS
from widthwise.models import MLP, draw, prescribe
from widthwise.optim import OPTIMIZERS, Optimizer
from widthwise.study.axes import DEPTH, WIDTH
from widthwise.theory import COMPLETEP, MUP, PARAMETERIZATIONS, RATE_RULES, Parameterization, read_depth_rule
from widthwise.train import Spec, subject_of

_CALLED = {
    **OPTIMIZERS,
    **{optimizer.family.name: optimizer for optimizer in OPTIMIZERS.values() if optimizer.orthogonalizes},
}
"""Optimizers by name, and mixtures with Muon also by the name of their family, muon+adam."""


@dataclass(frozen=True, kw_only=True)
class CheckCommand:
    """Train a few steps at several widths and check, layer by layer, that activations keep their size.

    Activations and their changes must neither grow nor shrink with width; logits and their change must not grow. Over
    depth, the same holds for the residual stream and for what its branches add up to. The exit code is 1 if something
    fails. To check your own model, see docs/alignment.md.
    """

    model: Annotated[str, named({"transformer": "transformer", "mlp": "mlp"})] = "transformer"
    """The model."""
    widths: tuple[int, ...] = WIDTHS
    """The widths to compare; over depth, the smallest is the width of all models."""
    axis: Annotated[str, named({axis.name: axis.name for axis in (WIDTH, DEPTH)})] = WIDTH.name
    """What grows: width or depth."""
    values: tuple[int, ...] = DEPTHS
    """The numbers of blocks to compare over depth."""
    depth_rule: str = COMPLETEP.name
    """What changes over depth: completep, sqrt, constant (nothing), or your own power of residual branches."""
    parameterization: Annotated[Parameterization, named(PARAMETERIZATIONS)] = MUP
    """The parameterization: initialization and multipliers."""
    optimizer: Annotated[Optimizer, named(_CALLED)] = OPTIMIZERS["adam"]
    """The optimizer; those of Muon train the hidden matrices, and Adam the rest."""
    alignment: Annotated[str, named({name: name for name in RATE_RULES})] = "full"
    """The alignment assumed for the learning rates; global for one rate at every width."""
    rates: Annotated[str | None, unset("those of the alignment")] = None
    """Your own exponents for the learning rates of embedding, hidden and readout, such as 0,-1,-1."""
    small_readout: bool = False
    """Start with a readout that is smaller by (width / base width)^-1/2; for the standard and ntk transformer."""
    learning_rate: Annotated[float, positive("X")] = 3e-3
    """The base learning rate; choose one close to the best at the base width."""
    hidden_constant: Annotated[float, positive("X")] = 1.0
    """Constant factor on the learning rate of hidden layers; Muon's is usually larger than Adam's next to it."""
    base_width: Annotated[int | None, count("N", least=1), unset("the smallest")] = None
    """The width at which the base learning rate applies as it is."""
    seeds: Annotated[int, count("N", least=1)] = SEEDS
    """Runs at each width; two or more give confidence intervals."""
    steps: Annotated[int, count("N", least=1)] = STEPS
    """Training steps."""
    tolerance: Annotated[float, positive("X")] = TOLERANCE
    """How far a slope may be from its bound."""
    blocks: Annotated[int, count("N", least=1)] = 2
    """Blocks of the transformer, or hidden layers of the MLP; over depth, the smallest of --values is the base."""
    head_dim: Annotated[int, count("N", least=1)] = 16
    """Head dimension of the transformer."""
    context: Annotated[int, count("N", least=1)] = 64
    """Sequence length of the transformer."""
    batch: Annotated[int, count("N", least=1)] = 16
    """Examples in a batch."""
    data: Annotated[str, named({"stdlib": "stdlib", "synthetic": "synthetic"})] = "stdlib"
    """The text to train the transformer on."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Train, check, and print the result."""
        deep = self.axis == DEPTH.name
        name, sizes = ("values", self.values) if deep else ("widths", self.widths)
        written = ", ".join(map(str, sizes))
        if min(sizes, default=1) < 1:
            raise ValueError(f"{name} are {written}: expected 1 or more, not {min(sizes)}")
        if len(set(sizes)) < 2:
            raise ValueError(f"{name} are {written}: expected two or more different ones")
        if not deep and self.values != DEPTHS:
            raise ValueError(f"values are given but the axis is {self.axis}: expected widths")
        if deep and self.model != "transformer":
            raise ValueError(f"model is {self.model}: expected transformer with --axis depth")
        if self.small_readout and self.model != "transformer":
            raise ValueError(f"model is {self.model}: expected transformer with --small-readout")
        with StatusLine(quiet=self.json) as status:
            build = self._transformer(status) if self.model == "transformer" else self._mlp()
            options: dict[str, Any] = {
                "seeds": self.seeds,
                "steps": self.steps,
                "tolerance": self.tolerance,
                "progress": lambda size, seed: status.show(
                    f"training {self.axis} {size}, seed {seed + 1} of {self.seeds}"
                ),
            }
            result = (
                replace(check_depths(build, depths=sizes, **options), multiplied=self._multiplied)
                if deep
                else check_coordinates(build, widths=sizes, **options)
            )
        if self.json:
            print(json.dumps(result.to_json(), indent=2))
        else:
            spec = self._spec()
            network, depth = spec.exponents().parameterization.name, f", {self.depth_rule} in depth" if deep else ""
            print(f"{self.model}, {network}, {self.optimizer.name}, {spec.rate_rule.title}{depth}.\n{result}")
        return 0 if result.passed else FAILED

    def _spec(self) -> Spec:
        return Spec(
            width=min(self.widths),
            base_width=self.base_width or min(self.widths),
            blocks=self.blocks,
            **({"depth_rule": self.depth_rule, "base_blocks": min(self.values)} if self.axis == DEPTH.name else {}),
            head_dim=self.head_dim if self.model == "transformer" else 1,
            context=self.context,
            batch=self.batch,
            data=self.data,
            optimizer=self.optimizer.name,
            parameterization=self.parameterization.name,
            alignment=self.alignment,
            rates=self.rates,
            small_readout=self.small_readout,
            learning_rate=self.learning_rate,
            hidden_constant=self.hidden_constant,
            eval_batches=1,
        )

    @property
    def _multiplied(self) -> bool:
        return read_depth_rule(self.depth_rule).branch > 0

    def _transformer(self, status: StatusLine) -> Callable[[int], Subject]:
        spec = self._spec()
        if self.axis == DEPTH.name:
            return subject_of(spec, open_data(spec, status), axis=DEPTH)
        for width in self.widths:
            replace(spec, width=width)  # refuses a width before anything is trained
        return subject_of(spec, open_data(spec, status))

    def _mlp(self) -> Callable[[int], Subject]:
        """Fit random targets: wrong exponents show on any task."""
        spec = self._spec()
        exponents = spec.exponents()

        def build(width: int) -> Subject:
            model = MLP(width=width, hidden_layers=self.blocks)
            plan = prescribe(model, exponents, base_width=spec.base_width, constants=spec.constants)
            keys = jax.random.split(jax.random.key(0))
            examples = (
                jax.random.normal(keys[0], (self.batch, model.inputs)),
                jax.random.normal(keys[1], (self.batch, model.outputs)),
            )
            return Subject.of(
                plan,
                lambda seed: plan.scales.initial(draw(model, jax.random.key(seed))),
                model=model.logits,
                loss=lambda logits, targets: jnp.mean(jnp.square(logits - targets)),
                examples=examples,
                optimizer=self.optimizer.build(self.learning_rate, plan, plan.layout),
            )

        return build
