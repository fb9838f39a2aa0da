"""`widthwise explain`: what a parameterization prescribes for every parameter of a built-in model."""

import json
from dataclasses import dataclass
from typing import Annotated

from widthwise.cli.arguments import count, named, positive, unset
from widthwise.models import MLP, Model, Transformer, prescribe
from widthwise.optim import OPTIMIZERS, Optimizer
from widthwise.parameterize import explain
from widthwise.theory import PARAMETERIZATIONS, RATE_RULES, STANDARD, Parameterization, RateRule, read_rates
from widthwise.theory.rates import FULL_ALIGNMENT


@dataclass(frozen=True, kw_only=True)
class ExplainCommand:
    """Show what a parameterization prescribes for every parameter: initialization, multiplier, learning rate, epsilon.

    This is for the built-in models. For your own model, `widthwise.explain` returns the same table.
    """

    model: Annotated[str, named({"transformer": "transformer", "mlp": "mlp"})] = "transformer"
    """The model."""
    width: Annotated[int, count("N", least=1)] = 256
    """The model's width."""
    base_width: Annotated[int, count("N", least=1)] = 128
    """The width at which learning rate and epsilon were tuned."""
    parameterization: Annotated[Parameterization, named(PARAMETERIZATIONS)] = STANDARD
    """The parameterization: initialization and multipliers."""
    optimizer: Annotated[Optimizer, named(OPTIMIZERS)] = OPTIMIZERS["adam"]
    """The optimizer."""
    alignment: Annotated[RateRule, named({name: read_rates(name) for name in RATE_RULES})] = FULL_ALIGNMENT
    """The alignment assumed for the learning rates; global for one rate at every width."""
    learning_rate: Annotated[float, positive("X")] = 1.0
    """The base learning rate; 1 shows the factors."""
    epsilon: Annotated[float | None, positive("X"), unset("the optimizer's")] = None
    """The base epsilon."""
    blocks: Annotated[int, count("N", least=1)] = 2
    """Blocks of the transformer."""
    head_dim: Annotated[int, count("N", least=1)] = 64
    """Head dimension of the transformer."""
    context: Annotated[int, count("N", least=1)] = 128
    """Sequence length of the transformer."""
    vocabulary: Annotated[int, count("N", least=1)] = 257
    """Vocabulary size of the transformer."""
    hidden_layers: Annotated[int, count("N")] = 2
    """Hidden layers of the MLP."""
    json: bool = False
    """Print a JSON list with an object for each parameter."""

    def run(self) -> int:
        """Print the table."""
        optimizer, network = self.optimizer, self.parameterization
        if self.epsilon is not None and optimizer.epsilon is None:
            raise ValueError(f"--epsilon {self.epsilon:g}: {optimizer.name} has no epsilon")
        exponents = self.alignment.exponents(network, optimizer.family)
        plan = prescribe(self._model(), exponents, base_width=self.base_width)
        epsilon = optimizer.epsilon if self.epsilon is None else self.epsilon
        explanation = explain(
            plan, learning_rate=self.learning_rate, epsilon=epsilon, epsilon_power=optimizer.epsilon_power
        )
        if self.json:
            print(json.dumps(explanation.to_json(), indent=2))
            return 0
        print(
            f"{self.model} of width {self.width}, base width {self.base_width}: "
            f"{network.name}, {optimizer.name}, {self.alignment.title}\n{explanation}"
        )
        if epsilon is not None:
            print(
                "\nEpsilons are per parameter, as in the theory. By default train, sweep and tune use the base\n"
                "epsilon for every parameter; with --epsilon-per-parameter they use these."
            )
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
