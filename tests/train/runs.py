"""Small runs for tests of the engine, and of the command line.

Compilation is most of what they take, so they share programs: 40 steps, in chunks of 20, of 17 where the last is to be
cut, or of 1 where training has to pause anywhere. Other numbers of steps, chunks or lanes are for tests about these.
"""

import shlex

from widthwise.data import Synthetic
from widthwise.models import Transformer, layout, prescribe
from widthwise.optim import OPTIMIZERS
from widthwise.theory import ADAM, FULL, PARAMETERIZATIONS, solve
from widthwise.train import Lane, Program

LANGUAGE = Synthetic(vocabulary=8, context=16, batch=8)
MODEL = Transformer(width=32, blocks=1, head_dim=16, context=16, vocabulary=8)
SMALL = shlex.split(
    "--data synthetic --vocabulary 8 --context 16 --batch 8 --eval-batches 2 "
    "--width 32 --base-width 32 --blocks 1 --head-dim 16 --steps 40 --warmup 5"
)
"""The same on the command line."""


def program(steps: int = 40, optimizer: str = "adam", model: Transformer = MODEL) -> Program:
    stated = layout(model, PARAMETERIZATIONS["standard"])
    return Program(model=model, optimizer=OPTIMIZERS[optimizer], layout=stated, steps=steps, warmup=5)


def lane(
    learning_rate: float = 1e-2, *, seed: int = 0, parameterization: str = "standard", model: Transformer = MODEL
) -> Lane:
    network = PARAMETERIZATIONS[parameterization]
    return Lane(
        seed=seed,
        scales=prescribe(model, solve(network, ADAM, FULL), base_width=32).scales,
        attention_scale=model.attention_scale(network),
        learning_rate=learning_rate,
        epsilon=1e-9,
    )
