"""A search for constants, carried out: batch after batch, each computed as a sweep's runs are."""

from dataclasses import replace

from widthwise.sweep.driver import Driver
from widthwise.sweep.fits import TUNING
from widthwise.sweep.packs import Wants
from widthwise.sweep.tuning import Trial, Tuning
from widthwise.train import Spec


def run_tuning(tuning: Tuning, spec: Spec, driver: Driver, wants: Wants, *, label: str = TUNING) -> list[Trial]:
    """Compute the trials that are not known yet; give all of them, up to a batch in which one failed.

    Args:
        tuning: How to search.
        spec: What to train.
        driver: What computes.
        wants: Its data.
        label: What the runs are asked for.
    """
    tried: list[Trial] = []
    while batch := tuning.propose(tried):
        wanted = [
            wants.want(
                replace(
                    spec,
                    embedding_constant=constants.embedding,
                    hidden_constant=constants.hidden,
                    readout_constant=constants.readout,
                ),
                constants=TUNING,
                horizon="fixed",
            )
            for constants in batch
        ]
        losses = driver.compute(wanted, label=label)
        if len(losses) < len({one.id for one in wanted}):
            break
        trials = zip(batch, wanted, strict=True)
        tried += [Trial(constants=constants, loss=losses[one.id]) for constants, one in trials]
    return tried
