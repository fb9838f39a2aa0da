"""What measuring alignment costs: training with a probe against training without, in rounds that take turns.

    python benchmarks/alignment.py [--width 128] [--steps 300]

Prints ratios measured in one run, compilation left out.
"""

import argparse
import statistics
import time

import jax

from widthwise.data import Synthetic
from widthwise.measure import Probe, log_spaced
from widthwise.train import Lanes, Spec, resolve, train

ROUNDS = 3


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
    tokens = evaluation.tokens[0][:8, :-1]
    probes = {
        "without": None,
        f"at {len(log_spaced(spec.steps))} log-spaced steps": Probe(tokens=tokens, steps=log_spaced(spec.steps)),
        "after every step": Probe(tokens=tokens, steps=tuple(range(spec.steps + 1))),
        "after every step, initial parameters kept": Probe(
            tokens=tokens, steps=tuple(range(spec.steps + 1)), keep_initial=True
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in probes}
    for _ in range(ROUNDS + 1):  # the first compiles
        for name, probe in probes.items():
            start = time.perf_counter()
            train(lanes, evaluation, evaluate_every=spec.steps, probe=probe)
            times[name].append(time.perf_counter() - start)
    seconds = {name: statistics.median(found[1:]) for name, found in times.items()}
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}: {spec.steps} steps at width {spec.width}")
    for name, value in seconds.items():
        print(f"  {name}: {value:.2f} s, {(value / seconds['without'] - 1) * 100:+.1f} %")


if __name__ == "__main__":
    main()
