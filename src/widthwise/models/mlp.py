"""The network of the theory: an embedding, hidden layers and a readout (§3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from widthwise.parameterize import Axes, PyTree, Rule
from widthwise.theory import Parameterization, Role


@dataclass(frozen=True, kw_only=True)
class MLP:
    """A multilayer perceptron with ReLU between its layers.

    Attributes:
        width: The dimension of the hidden activations.
        hidden_layers: The number of hidden layers, each width × width.
        inputs: The dimension of the input.
        outputs: The number of logits.
    """

    width: int
    hidden_layers: int = 2
    inputs: int = 16
    outputs: int = 8

    def __post_init__(self) -> None:
        for name in ("width", "inputs", "outputs"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        if self.hidden_layers < 0:
            raise ValueError(f"hidden_layers is {self.hidden_layers}: expected 0 or more")

    def shapes(self) -> PyTree:
        """Return the shapes of the parameters."""
        n = self.width
        return {
            "embedding": _matrix(self.inputs, n),
            "hidden": [_matrix(n, n) for _ in range(self.hidden_layers)],
            "readout": _matrix(n, self.outputs),
        }

    def rules(self, parameterization: Parameterization) -> dict[str, Rule]:
        """Return the role of every parameter. The constant of the embedding compensates for its sum over the inputs."""
        axes = Axes(inputs=(0,), outputs=(1,))
        rules = {
            "embedding": Rule(role=Role.EMBEDDING, axes=axes, init=self.inputs**-0.5),
            "hidden/*": Rule(role=Role.HIDDEN, axes=axes),
            "readout": Rule(role=Role.READOUT, axes=axes),
        }
        return {path: rule for path, rule in rules.items() if self.hidden_layers or path != "hidden/*"}

    def activations(self, params: PyTree, x: Float[Array, "batch inputs"]) -> Sequence[Float[Array, "batch features"]]:
        """Return the output of every layer before the nonlinearity, logits last. `params` are effective parameters."""
        outputs = [x @ params["embedding"]]
        for weight in [*params["hidden"], params["readout"]]:
            outputs.append(jax.nn.relu(outputs[-1]) @ weight)
        return outputs

    def logits(self, params: PyTree, x: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        """Return the logits. `params` are effective parameters."""
        return self.activations(params, x)[-1]


def _matrix(inputs: int, outputs: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((inputs, outputs), jnp.zeros(()).dtype)
