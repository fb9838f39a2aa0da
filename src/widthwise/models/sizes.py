"""The number of parameters and of compute-optimal steps of a transformer (appendix, "Model sizes")."""

from dataclasses import dataclass
from math import prod

from widthwise.models.transformer import Transformer
from widthwise.parameterize.paths import named_leaves

TOKENS_PER_PARAMETER = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """The parameters of a transformer, counted as in the paper.

    Attributes:
        embedding: The token embedding alone.
        non_embedding: Everything else: blocks, LayerNorm scales, positions and the readout.
    """

    embedding: int
    non_embedding: int

    @property
    def total(self) -> int:
        """All parameters."""
        return self.embedding + self.non_embedding


def count_parameters(model: Transformer) -> ParameterCount:
    """Count the parameters of a transformer from its shapes.

    >>> count_parameters(Transformer(width=128)).total
    9858432
    """
    sizes = {path: prod(leaf.shape) for path, leaf in named_leaves(model.shapes()).items()}
    embedding = sizes["tokens/embedding"]
    return ParameterCount(embedding=embedding, non_embedding=sum(sizes.values()) - embedding)


def compute_optimal_steps(model: Transformer, *, batch: int) -> int:
    """Return the number of steps after which a model has seen 20 tokens per non-embedding parameter.

    >>> compute_optimal_steps(Transformer(width=128), batch=256)
    877
    """
    tokens = TOKENS_PER_PARAMETER * count_parameters(model).non_embedding
    return max(1, tokens // (batch * model.context))
