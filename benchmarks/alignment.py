"""What measuring alignment costs: training with a probe against training without, in rounds that take turns.

    python benchmarks/alignment.py [--width 128] [--steps 300]

Prints ratios measured in one run, compilation left out.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import jax

from widthwise.data import Synthetic
from widthwise.measure import Probe, log_spaced
from widthwise.train import Lanes, Spec, resolve, train

ROUNDS = 3
EVERY = 30


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lanes", type=int, default=1)
    chosen = parser.parse_args()
    spec = Spec(width=chosen.width, steps=chosen.steps, batch=chosen.batch, data="synthetic")
    run = resolve(spec, vocabulary=256, data={})
    language = Synthetic(vocabulary=256, context=spec.context, batch=spec.batch)
    evaluation = language.held_out(1)
    lanes = Lanes(run.program, [run.lane] * chosen.lanes, language)
    probe = Probe(tokens=evaluation.tokens[0][:8, :-1], steps=log_spaced(spec.steps))
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}: width {spec.width}, {chosen.lanes} lanes")
    plain, spaced = in_turns(
        lambda: train(lanes, evaluation, evaluate_every=spec.steps),
        lambda: train(lanes, evaluation, evaluate_every=spec.steps, probe=probe),
    )
    print(f"  {len(probe.steps)} log-spaced measurements in {spec.steps} steps: {(spaced / plain - 1) * 100:+.1f} %")
    initial = lanes.initial()

    def steps(*, measured: bool, kept: bool = False) -> None:
        states = lanes.start()
        for step in range(EVERY):
            states, _ = lanes.chunk(states, step, 1)
            if measured:
                lanes.measure(states, probe.tokens, initial=initial if kept else None)

    plain, drawn, kept = in_turns(
        lambda: steps(measured=False), lambda: steps(measured=True), lambda: steps(measured=True, kept=True)
    )
    for name, seconds in (("after every step", drawn), ("after every step, initial parameters kept", kept)):
        print(f"  {name}: {(seconds / plain - 1) * 100:+.0f} %")


def in_turns(*actions: Callable[[], object]) -> list[float]:
    """Return the median time of each, after a first round that compiles."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(ROUNDS + 1):
        for action, found in zip(actions, times, strict=True):
            start = time.perf_counter()
            action()
            found.append(time.perf_counter() - start)
    return [statistics.median(found[1:]) for found in times]


if __name__ == "__main__":
    main()
