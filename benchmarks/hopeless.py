"""What ending hopeless runs early saves, and what it does to the optimum, from recorded training losses.

    python benchmarks/hopeless.py record STUDY [STEPS]
    python benchmarks/hopeless.py STUDY

The first command trains full grids of learning rates to their end, diverged or not, in about 10 minutes on one core
(150 steps). The second replays the adaptive search on them, once for each rule that could end a run, from starts below,
at and above the usual one:

- diverged: what training does, see `widthwise.train.program.DIVERGED`;
- behind: the loss is far above that of the best run so far, at the same steps: of the same width in earlier rounds of
  the search or, in its first round, of the width before. The schedule lets rates that are too high recover late, so
  rates above the best one are judged later;
- oracle: a bound on every rule that compares with runs before. It knows the loss at the end of a run, and does not
  start one that will be over 20 % above the best of its width. Most of these are just above: they locate the stability
  edge, and no curve tells them early from runs just below.

It prints the share of steps that each rule saves and the lowest final loss of a run that it ended. A run that several
settings share counts for each. Then it prints the optimum of every group without and with the rule "diverged", and
exits with 1 if one of them left its interval.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from widthwise.cli import main as widthwise
from widthwise.experiments.sizes import STARTS
from widthwise.fit import Trial, fit_transfer
from widthwise.search.lattice import AdaptiveSearch
from widthwise.study import History, Study
from widthwise.study.fits import GroupFit, fit_rows
from widthwise.sweeps.sweep import expected_exponent
from widthwise.train import program

GRIDS = {"adam": (2**-12, 2**3), "sgd": (2**-6, 2**4)}
WINDOW = 0.1
"""The share of steps that "behind" averages over."""
BEHIND = {"below": (0.4, 1.3), "above": (0.5, 1.3)}
"""From which share of steps on, and how many times above the best run, for rates below and above its own: chosen on
these very curves, as bold as possible without ending a run that would have come within 20 % of the best."""
ORACLE = 1.2
"""How many times above the best of its width a run must end for the oracle not to start it."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A run that was trained to its end."""

    trial: Trial
    losses: History
    steps: int
    vocabulary: int


Rule = Callable[[Recorded, Recorded | None, float], int]
"""Returns after how many steps a run ends, given the best run so far and the lowest loss of its width."""


def never(run: Recorded, best: Recorded | None, lowest: float) -> int:
    return int(run.losses.steps[-1]) + 1


def diverged(run: Recorded, best: Recorded | None, lowest: float) -> int:
    high = ~(run.losses.values <= program.DIVERGED * math.log(run.vocabulary))
    return int(run.losses.steps[np.argmax(high)]) + 1 if high.any() else never(run, best, lowest)


def behind(run: Recorded, best: Recorded | None, lowest: float) -> int:
    taken = never(run, best, lowest)
    if best is None:
        return taken
    first, factor = BEHIND["below" if run.trial.learning_rate < best.trial.learning_rate else "above"]
    for share in np.arange(first, 1, 0.05):
        end = math.ceil(share * run.steps)
        if end >= taken:
            break
        begin = end - WINDOW * run.steps
        own, other = (np.mean(x.values[(begin <= x.steps) & (x.steps < end)]) for x in (run.losses, best.losses))
        if not own <= factor * other:
            return end
    return taken


def oracle(run: Recorded, best: Recorded | None, lowest: float) -> int:
    close = run.trial.eval_loss <= lowest * ORACLE
    return never(run, best, lowest) if best is None or close else 0


@dataclass
class Replay:
    """A search replayed on a group: what it saw, the steps it took, those it saved, and what it ended early."""

    trials: list[Trial]
    taken: int = 0
    saved: int = 0
    ended: int = 0
    least: float = math.inf


def replay(group: GroupFit, runs: Mapping[Trial, Recorded], rule: Rule, octaves: float) -> Replay:
    """Search the learning rates of a group, starting this many octaves above the usual start."""
    found = Replay([])
    before: Recorded | None = None
    for width in sorted({trial.width for trial in runs}):
        mine = {AdaptiveSearch().index(trial.learning_rate): run for trial, run in runs.items() if trial.width == width}
        search = AdaptiveSearch(lowest=2 ** (min(mine) / 2), highest=2 ** (max(mine) / 2))
        if before is None:
            start = search.index(STARTS[group.setting.optimizer] * 2**octaves)
        else:
            ratio, exponent = width / before.trial.width, expected_exponent(group.setting)
            start = search.start_from(search.index(before.trial.learning_rate), width_ratio=ratio, exponent=exponent)
        lowest = np.nanmin([run.trial.eval_loss for run in mine.values()])
        losses: dict[int, float] = {}
        while (proposal := search.propose(losses, start)).points:
            best = before if proposal.optimum is None else mine[proposal.optimum]
            for point in proposal.points:
                run = mine[point]
                end, whole = rule(run, best, lowest), never(run, best, lowest)
                losses[point] = run.trial.eval_loss if end == whole else math.nan
                found.trials.append(replace(run.trial, eval_loss=losses[point]))
                found.taken += end
                found.saved += whole - end
                if end < whole:
                    found.ended += 1
                    if math.isfinite(run.trial.eval_loss):
                        found.least = min(found.least, run.trial.eval_loss / lowest)
        before = mine[start if proposal.optimum is None else proposal.optimum]
    return found


def record(folder: str, steps: int) -> None:
    """Train grids, without the rule."""
    program.DIVERGED = 1e37  # only what is not finite
    size = f"--blocks 1 --head-dim 16 --context 32 --batch 16 --steps {steps} --warmup {steps // 10} --base-width 32"
    for optimizer, (low, high) in GRIDS.items():
        chosen = f"--optimizers {optimizer} --parameterizations standard mup --settings full global --widths 32 64 128"
        words = f"sweep --study {folder} {size} {chosen} --grid {low * 0.999} {high * 1.001}"
        if code := widthwise(words.split()):
            sys.exit(code)


def read(folder: str) -> list[tuple[GroupFit, dict[Trial, Recorded]]]:
    """Return the groups of a study, with the losses of their runs."""
    with Study.open(folder, create=False) as study:
        groups = fit_rows(study.runs())
        curves = study.curves([run for group in groups for run in group.runs.values()])
        vocabulary = study.details(next(iter(curves))).identity["model"]["vocabulary"]

    def recorded(group: GroupFit, trial: Trial) -> Recorded:
        losses = curves[group.runs[trial]]["train_loss"]
        return Recorded(trial=trial, losses=losses, steps=group.spec["steps"], vocabulary=vocabulary)

    return [(group, {trial: recorded(group, trial) for trial in group.trials}) for group in groups]


def main() -> int:
    """Print both tables."""
    if sys.argv[1] == "record":
        record(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 150)
        return 0
    groups = read(sys.argv[1])
    print("steps saved (runs ended early, and the lowest final loss of one as a multiple of its width's best)")
    for optimizer in dict.fromkeys(group.setting.optimizer for group, _ in groups):
        for octaves in (-4, -2, 0, 2, 4):
            cells = []
            for rule in (diverged, behind, oracle):
                found = [replay(*one, rule, octaves) for one in groups if one[0].setting.optimizer == optimizer]
                saved, taken = sum(each.saved for each in found), sum(each.taken for each in found)
                least, ended = min(each.least for each in found), sum(each.ended for each in found)
                cells.append(f"{rule.__name__} {saved / (saved + taken):6.1%} ({ended:3}, {least:6.3g})")
            print(f"{optimizer:6} start {octaves:+} octaves:  " + "   ".join(cells))
    print("\nlog2 of the optimum without [its interval] and with the rule")
    moved = 0
    for group, runs in groups:
        for octaves in (-4, 0, 4):
            without, ruled = (fit_transfer(replay(group, runs, rule, octaves).trials) for rule in (never, diverged))
            for one, other in zip(without.optima, ruled.optima, strict=True):
                a, b = one.octaves.estimate, other.octaves.estimate
                same = a.value == b.value or a.low <= b.value <= a.high
                moved += not same
                print(
                    f"{group.title}, width {one.width}, start {octaves:+}: {a.value:.3f} [{a.low:.3f}, {a.high:.3f}] "
                    f"{b.value:.3f}{'' if one.interior else ' at the end of the grid'}{'' if same else ' MOVED'}"
                )
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
