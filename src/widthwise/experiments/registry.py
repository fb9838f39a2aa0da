"""All experiments by name, in the paper's order."""

from widthwise.experiments import transfer
from widthwise.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (transfer.EXPERIMENT,)}
