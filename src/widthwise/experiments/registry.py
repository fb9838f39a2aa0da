"""All experiments by name, in the order of the paper's sections."""

from widthwise.experiments import (
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
from widthwise.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        alignment,
        per_layer,
        transfer,
        epsilon,
        weight_decay,
        adafactor,
        horizon,
        constants,
        equivalence,
        atan2,
    )
}
