"""All experiments by name, in the order of the paper's sections, and then one of our own."""

from widthwise.experiments.experiment import Experiment
from widthwise.experiments.paper import (
    adafactor,
    alignment,
    atan2,
    constants,
    epsilon,
    equivalence,
    horizon,
    length,
    per_layer,
    transfer,
    weight_decay,
)

_TRAINING = (alignment, per_layer, transfer, epsilon, weight_decay, adafactor, horizon, constants, length)
_DERIVED = (equivalence, atan2)

EXPERIMENTS: dict[str, Experiment] = {one.EXPERIMENT.name: one.EXPERIMENT for one in (*_TRAINING, *_DERIVED)}
