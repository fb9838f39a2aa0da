"""This project's side of `gpu.py`. Prints JSON lines."""

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu_settings as settings
import jax
import jax.numpy as jnp
import numpy as np
from gpu_settings import tell

from widthwise.data import Evaluation, Order, Resident
from widthwise.measure import Probe, log_spaced
from widthwise.train import Checkpoints, Lanes, Spec, resolve, train


def lanes_for(
    part: str, width: int, count: int, *, optimizer: str = "adam", steps: int = 10_000, remat: Any = None
) -> Lanes:
    """Set up runs that differ in their learning rates, on random tokens."""
    setting = settings.SETTINGS[part]
    runs = [
        resolve(
            Spec(
                width=width,
                blocks=setting.blocks,
                head_dim=setting.head_dim,
                context=setting.context,
                vocabulary=setting.vocabulary,
                batch=setting.batch,
                data="synthetic",
                steps=steps,
                warmup=steps // 10,
                optimizer=optimizer,
                learning_rate=1e-4 * (1 + lane / count),
            ),
            vocabulary=setting.vocabulary,
            data={},
        )
        for lane in range(count)
    ]
    text = np.random.default_rng(0).integers(0, setting.vocabulary, 2_000_000).astype(np.uint16)
    order = Order(sequences=len(text) // setting.context - 1, batch=setting.batch, seed=0)
    batches = Resident(text, order, setting.context, setting.vocabulary)
    program = replace(runs[0].program, model=replace(runs[0].program.model, remat=remat))
    return Lanes(program, [run.lane for run in runs], batches)


def held_out(setting: settings.Setting) -> Evaluation:
    """Return a batch of random tokens to evaluate and to measure on."""
    tokens = np.random.default_rng(1).integers(0, setting.vocabulary, (1, 8, setting.context + 1), np.int32)
    return Evaluation(tokens, np.ones((1, 8, setting.context), np.float32))


class Steps:
    """Takes steps of some lanes, again and again."""

    def __init__(self, lanes: Lanes, count: int) -> None:
        self.lanes, self.count, self.states = lanes, count, lanes.start()

    def __call__(self) -> None:
        """Take the steps of one call and wait for them."""
        self.states, result = self.lanes.chunk(self.states, 0, self.count)
        assert np.isfinite(result.losses).all()


def measure(part: str, width: int, remat: str | None = None) -> None:
    """Time steps."""
    setting, models = settings.SETTINGS[part], settings.LANES if part == "lanes" else 1
    count = settings.steps_for(setting, width, models)
    lanes = lanes_for(part, width, models, remat=remat)
    began = time.perf_counter()
    lanes.begin(count)
    steps = Steps(lanes, count)
    steps()
    first = time.perf_counter() - began
    found = settings.median_seconds(steps, setting.repeats) / count
    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 1e9
    tell(
        part=part,
        who=remat or "ours",
        width=width,
        models=models,
        **settings.speed(setting, width, models, found),  # FLOPs of what is computed again do not count
        first_seconds=first,
        peak_gb=peak,  # with what the compiler took to try matrix products out
        program_gb=lanes.chunk_bytes(count) / 1e9,
    )


def optimizers(part: str, width: int, names: Sequence[str]) -> None:
    """Time a step of each optimizer, one after another."""
    setting, models = settings.SETTINGS[part], 1 if part == "single" else settings.LANES
    count = settings.steps_for(setting, width, models)
    found = {}
    for name in dict.fromkeys(("adam", *names)):
        steps = Steps(lanes_for(part, width, models, optimizer=name), count)
        steps()
        found[name] = settings.median_seconds(steps) / count
        tell(
            part="optimizers",
            who=f"{part} {name}",
            width=width,
            **settings.speed(setting, width, models, found[name]),
            relative_to_adam=found[name] / found["adam"],
        )


def alignment(width: int) -> None:
    """Train with measurements of alignment at their default spacing, and without."""
    steps, setting = 1000, settings.SETTINGS["lanes"]
    lanes = lanes_for("lanes", width, 8, steps=steps)
    evaluation = held_out(setting)
    probe = Probe(tokens=evaluation.tokens[0][:8, :-1], steps=log_spaced(steps))

    def run(probe: Probe | None) -> None:
        train(lanes, evaluation, evaluate_every=steps, probe=probe)

    run(probe)  # compiles everything that the other needs too
    without, measured = (settings.median_seconds(lambda chosen=chosen: run(chosen), 1) for chosen in (None, probe))
    tell(
        part="alignment",
        who="ours",
        width=width,
        seconds=without,
        measured_seconds=measured,
        cost=measured / without - 1,
    )


class Some:
    """Checkpoints of which only those of some steps are made."""

    def __init__(self, kept: Checkpoints, steps: tuple[int, ...]) -> None:
        self._kept, self._steps = kept, steps

    def save(self, step: int, states: Any, record: dict[str, Any], *, best: bool = False, due: bool = True) -> None:
        """Save after one of the steps."""
        if step in self._steps:
            self._kept.save(step, states, record, best=best, due=due)

    def latest(self) -> int:
        """Begin from the start."""
        return 0

    def restore(self, like: Any) -> None:
        """Begin from the start."""


def checkpoints(width: int) -> None:
    """Train, save twice on the way, and compare every chunk of steps from then on with those before."""
    steps, chunk, setting = 1200, 10, settings.SETTINGS["single"]
    first, second = steps // 6, steps // 6 * 3  # the first sets up what others use again; each has time to be written
    lanes = lanes_for("single", width, 1, steps=steps)
    size = sum(x.nbytes for x in jax.tree.leaves(lanes.start()))
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        kept = Checkpoints(Path(folder))
        train(
            lanes,
            held_out(setting),
            chunk=chunk,
            evaluate_every=steps,
            checkpoints=Some(kept, (first, second)),
            checkpoint_seconds=math.inf,
            checkpoint_steps=first,
            progress=lambda _: times.append(time.perf_counter()),
        )
        began = time.perf_counter()
        kept.close()
        waited = time.perf_counter() - began
    taken = np.diff(times)[: steps // chunk - 2]  # not the last one, which evaluates
    begun = [step // chunk - 1 for step in (first, second)]  # the first chunk that begins after saving
    usual = float(np.median(taken[1 : begun[0]]))
    stalls = [float(np.sum(part - usual)) for part in (taken[begun[0] : begun[1]], taken[begun[1] :])]
    tell(
        part="checkpoints",
        who="ours",
        width=width,
        state_gb=size / 1e9,
        step_ms=usual / chunk * 1e3,
        first_stall_seconds=stalls[0],
        stall_seconds_each=stalls[1],
        at_once_seconds=float(taken[begun[1]] - usual),
        cost=stalls[1] / 60,  # of training, at the default of one a minute
        still_writing_seconds=waited,
    )


def peak() -> None:
    """Time a large matrix product of random numbers."""
    size = 8192
    x, y = jax.random.normal(jax.random.key(0), (2, size, size), jnp.bfloat16)
    product = jax.jit(jnp.matmul)

    def products() -> None:
        for _ in range(20):
            last = product(x, y)
        last.block_until_ready()

    products()
    tell(part="peak", who="ours", width=size, tflops=20 * 2 * size**3 / settings.median_seconds(products) / 1e12)


if __name__ == "__main__":
    chosen = settings.arguments(
        ["peak", "single", "lanes", "large", "optimizers-single", "optimizers-lanes", "alignment", "checkpoints"]
    )
    match chosen.part:
        case "peak":
            peak()
        case "alignment":
            alignment(chosen.width)
        case "checkpoints":
            checkpoints(chosen.width)
        case "single" | "lanes" | "large" as part:
            measure(part, chosen.width, chosen.remat)
        case part:
            optimizers(part.removeprefix("optimizers-"), chosen.width, chosen.optimizers)
