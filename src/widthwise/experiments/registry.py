"""All experiments by name: the paper's, in the order of its sections, and our own."""

from widthwise.experiments.beyond import decay, growth, length, muon
from widthwise.experiments.experiment import Experiment
from widthwise.experiments.paper import (
    adafactor,
    alignment,
    atan2,
    constants,
    epsilon,
    equivalence,
    horizon,
    per_layer,
    transfer,
    weight_decay,
)

_TRAINING = (alignment, per_layer, transfer, epsilon, weight_decay, adafactor, horizon, constants)
_DERIVED = (equivalence, atan2)

_BEYOND = (length.EXPERIMENT, muon.EXPERIMENT, decay.EXPERIMENT, *growth.EXPERIMENTS)

EXPERIMENTS: dict[str, Experiment] = {
    one.name: one for one in (*(module.EXPERIMENT for module in (*_TRAINING, *_DERIVED)), *_BEYOND)
}
