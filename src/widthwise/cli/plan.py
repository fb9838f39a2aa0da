"""`widthwise plan`: how large a transformer is and how long it trains, before anything is allocated."""

import json
from dataclasses import dataclass
from typing import Annotated

from widthwise.cli.arguments import count
from widthwise.cli.output import Output
from widthwise.models import Transformer, compute_optimal_steps, count_parameters


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Parameters and compute-optimal steps of the paper's transformer, counted without allocating it.

    The defaults are the paper's. Compute-optimal is 20 tokens for each non-embedding parameter.
    """

    width: Annotated[int, count("N", least=1)]
    """The model's width, a multiple of the head dimension."""
    blocks: Annotated[int, count("N", least=1)] = 8
    """The number of blocks."""
    head_dim: Annotated[int, count("N", least=1)] = 128
    """The dimension of a head."""
    context: Annotated[int, count("N", least=1)] = 512
    """The length of sequences."""
    vocabulary: Annotated[int, count("N", least=1)] = 32101
    """The number of tokens in the vocabulary."""
    batch: Annotated[int, count("N", least=1)] = 256
    """Sequences in a batch."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Print the counts."""
        model = Transformer(
            width=self.width,
            blocks=self.blocks,
            head_dim=self.head_dim,
            context=self.context,
            vocabulary=self.vocabulary,
        )
        parameters = count_parameters(model)
        steps = compute_optimal_steps(model, batch=self.batch)
        if self.json:
            counts = {
                "embedding": parameters.embedding,
                "non_embedding": parameters.non_embedding,
                "total": parameters.total,
            }
            print(json.dumps({"parameters": counts, "steps": {"compute_optimal": steps}}, indent=2))
            return 0
        output = Output()
        output.lines(
            f"transformer of width {self.width}: {self.blocks} blocks, {model.heads} heads, "
            f"context {self.context}, vocabulary {self.vocabulary}",
            f"  embedding parameters      {parameters.embedding:>18,}",
            f"  non-embedding parameters  {parameters.non_embedding:>18,}",
            f"  total parameters          {parameters.total:>18,}",
            f"  compute-optimal steps     {steps:>18,}   at batch {self.batch}",
        )
        output.write()
        return 0
