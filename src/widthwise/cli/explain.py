"""`widthwise explain`: what a parameterization prescribes for every parameter of a built-in model."""

import json
from dataclasses import dataclass
from typing import Annotated

from widthwise.cli.arguments import count, named, positive, unset
from widthwise.cli.output import Output
from widthwise.models import MLP, Model, Transformer, prescribe
from widthwise.optim import OPTIMIZERS, Optimizer
from widthwise.parameterize import explain
from widthwise.theory import (
    ALIGNMENTS,
    FULL,
    PARAMETERIZATIONS,
    STANDARD,
    Alignment,
    Parameterization,
    check,
    solve,
)

GLOBAL = Alignment(name="global", hidden=FULL.hidden, readout=FULL.readout)
"""Not an assumption about alignment but the lack of one: the same learning rate for every parameter at every width."""


@dataclass(frozen=True, kw_only=True)
class Explain:
    """What a parameterization prescribes for every parameter: initialization, multiplier, learning rate, epsilon.

    For the built-in models. For a model of your own, `widthwise.explain` gives the same table.
    """

    model: Annotated[str, named({"transformer": "transformer", "mlp": "mlp"})] = "transformer"
    """Which model."""
    width: Annotated[int, count("N", least=1)] = 256
    """The model's width."""
    base_width: Annotated[int, count("N", least=1)] = 128
    """The width at which learning rate and epsilon were tuned."""
    parameterization: Annotated[Parameterization, named(PARAMETERIZATIONS)] = STANDARD
    """Which initialization and multipliers."""
    optimizer: Annotated[Optimizer, named(OPTIMIZERS)] = OPTIMIZERS["adam"]
    """Which optimizer."""
    alignment: Annotated[Alignment, named({**ALIGNMENTS, "global": GLOBAL})] = FULL
    """The alignment assumed for the learning rates; global for one rate at every width."""
    learning_rate: Annotated[float, positive("X")] = 1.0
    """The base learning rate; with 1, factors are shown."""
    epsilon: Annotated[float | None, positive("X"), unset("the optimizer's")] = None
    """The base epsilon."""
    blocks: Annotated[int, count("N", least=1)] = 2
    """Blocks of the transformer."""
    head_dim: Annotated[int, count("N", least=1)] = 64
    """Head dimension of the transformer."""
    context: Annotated[int, count("N", least=1)] = 128
    """Context of the transformer."""
    vocabulary: Annotated[int, count("N", least=1)] = 257
    """Vocabulary of the transformer."""
    hidden_layers: Annotated[int, count("N")] = 2
    """Hidden layers of the MLP."""
    json: bool = False
    """Print a JSON list with an object for each parameter."""

    def run(self) -> int:
        """Print the table."""
        optimizer, network = self.optimizer, self.parameterization
        if self.epsilon is not None and optimizer.epsilon is None:
            raise ValueError(f"--epsilon {self.epsilon:g}: {optimizer.name} has no epsilon")
        if self.alignment is GLOBAL:
            exponents = check(network, [0] * len(network.layers), optimizer.family, FULL)
        else:
            exponents = solve(network, optimizer.family, self.alignment)
        plan = prescribe(self._model(), exponents, base_width=self.base_width)
        epsilon = optimizer.epsilon if self.epsilon is None else self.epsilon
        explanation = explain(
            plan, learning_rate=self.learning_rate, epsilon=epsilon, epsilon_power=optimizer.epsilon_power
        )
        if self.json:
            print(json.dumps(explanation.to_json(), indent=2))
            return 0
        output = Output()
        output.lines(
            f"{self.model} of width {self.width}, base width {self.base_width}: {network.name}, {optimizer.name}, "
            f"{self.alignment.name}{'' if self.alignment is GLOBAL else ' alignment'}",
            *str(explanation).splitlines(),
        )
        if epsilon is not None:
            output.lines(
                "",
                "Epsilons are per parameter, as the theory has them; train, sweep and tune use the base epsilon",
                "everywhere unless told --epsilon-per-parameter.",
            )
        output.write()
        return 0

    def _model(self) -> Model:
        if self.model == "mlp":
            return MLP(width=self.width, hidden_layers=self.hidden_layers)
        return Transformer(
            width=self.width,
            blocks=self.blocks,
            head_dim=self.head_dim,
            context=self.context,
            vocabulary=self.vocabulary,
        )
