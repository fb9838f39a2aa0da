"""The engine on this machine: chunked dispatch against one dispatch per step, and what checkpoints cost.

    python benchmarks/engine.py

Prints ratios measured in one run, in rounds that take turns.
"""

import resource
import statistics
import tempfile
import time
from pathlib import Path

import jax

from widthwise.data import Synthetic
from widthwise.train import Checkpoints, Lanes, Spec, resolve, train

ROUNDS = 5


def lanes_for(spec: Spec) -> Lanes:
    """Set up one run."""
    run = resolve(spec, vocabulary=64, data={})
    return Lanes(
        run.program, [run.lane], Synthetic(vocabulary=64, context=spec.context, batch=spec.batch), side_by_side=False
    )


def chunks() -> None:
    """Compare 40 steps in one call with 40 calls of one step, for a model small enough for dispatch to matter."""
    spec = Spec(width=64, blocks=2, head_dim=32, context=32, batch=8, data="synthetic", steps=100_000)
    lanes = lanes_for(spec)
    states = lanes.start()
    times: dict[int, list[float]] = {1: [], 40: []}
    for _ in range(ROUNDS + 1):
        for size, measured in times.items():
            start = time.perf_counter()
            for begin in range(0, 40, size):
                states, _ = lanes.chunk(states, begin, size)
            measured.append(time.perf_counter() - start)
    one, forty = (statistics.median(measured[1:]) for measured in times.values())
    print(f"40 steps: {one * 1e3:.0f} ms one by one, {forty * 1e3:.0f} ms in one call, ratio {one / forty:.2f}")


def checkpoints() -> None:
    """Compare 200 steps without checkpoints with the same saving ten times."""
    spec = Spec(width=256, blocks=4, head_dim=64, context=64, batch=16, data="synthetic", steps=200, warmup=10)
    lanes = lanes_for(spec)
    evaluation = Synthetic(vocabulary=64, context=64, batch=16).held_out(1)
    size = sum(x.nbytes for x in jax.tree.leaves(lanes.start())) / 1e6

    def run(folder: Path | None) -> float:
        saved = None if folder is None else Checkpoints(folder)
        start = time.perf_counter()
        train(lanes, evaluation, chunk=20, evaluate_every=200, checkpoints=saved, checkpoint_seconds=0)
        if saved is not None:
            saved.close()
        return time.perf_counter() - start

    run(None)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plain = run(None)
    with tempfile.TemporaryDirectory() as folder:
        saving = run(Path(folder))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
    print(
        f"200 steps, state of {size:.0f} MB: {plain:.1f} s without, {saving:.1f} s with 10 checkpoints, "
        f"{(saving / plain - 1) * 100:.0f} % longer; peak memory {grown:.0f} MB higher"
    )


if __name__ == "__main__":
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}")
    chunks()
    checkpoints()
