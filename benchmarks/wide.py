"""Train at widths up to 4096 with full control over the first steps: the runs of docs/width-4096.md.

    python benchmarks/wide.py PLAN OUT [--seconds 540]

PLAN is a JSON file with a list of trials (see `Trial`). OUT is a folder. Finished runs are appended to `runs.jsonl`,
one line per run, and measurements during training to `looks.jsonl`, one line per measured step. Trials run in the order
of the plan. Neighbours with the same width, steps and looks are trained together. A trial that would not finish within
--seconds is skipped.

Schedules, rates by group, initial sizes and Adam's decay rates are arguments of the compiled step, so each width is
compiled only once, whatever is tried there.
"""

import argparse
import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from widthwise.measure import capture, measure
from widthwise.optim.adam import scale_by_adam
from widthwise.train import Inputs, Run, Spec, compiling, load_inputs, resolve

HORIZON = 2400
"""The largest number of steps of a trial."""
GROUPS = ("tokens", "positions", "norms", "attention", "mlp", "readout")
ROLES = {"embedding": ("tokens", "positions", "norms"), "hidden": ("attention", "mlp"), "readout": ("readout",)}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run: part of a `Spec`, and changes to its first steps.

    Attributes:
        label: The name of the trial.
        width: The width.
        rate: The base learning rate.
        steps: Training steps of the schedule.
        warmup: Steps of linear warm-up, followed by cosine decay to 0.
        stop: The number of steps after which to stop; None to train to the end.
        seed: The seed of the initialization.
        parameterization: The parameterization, with rates for full alignment unless `rates` is given.
        rates: Learning-rate exponents for embedding, hidden and readout.
        b1: Adam's β₁.
        b2: Adam's β₂.
        epsilon: Adam's epsilon.
        init: Factors on the initial weights, by group or role.
        factors: Factors on the learning rates, by group or role.
        early: Factors on the learning rates before step `until`, by group or role.
        until: The first step at which `early` no longer applies.
        looks: The steps after which to measure.
    """

    label: str = ""
    width: int = 256
    rate: float = 0.005
    steps: int = 300
    warmup: int = 30
    stop: int | None = None
    seed: int = 0
    parameterization: str = "standard"
    rates: str | None = None
    b1: float = 0.9
    b2: float = 0.98
    epsilon: float = 1e-9
    init: dict[str, float] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)
    early: dict[str, float] = field(default_factory=dict)
    until: int = 0
    looks: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        """The last step."""
        return self.steps if self.stop is None else min(self.stop, self.steps)

    def schedule(self) -> np.ndarray:
        """Return the factor on the base rate at every step, for every group."""
        step = np.arange(self.steps)
        rest = np.cos(np.pi * (step - self.warmup) / max(1, self.steps - self.warmup)) / 2 + 0.5
        shape = np.where(step < self.warmup, step / max(1, self.warmup), rest)
        table = np.repeat(shape[:, None], len(GROUPS), axis=1) * by_group(self.factors)
        table[: self.until] *= by_group(self.early)
        return table.astype(np.float32)


def by_group(factors: dict[str, float]) -> np.ndarray:
    """Return a factor for every group; the factor of a role applies to all of its groups."""
    found = dict.fromkeys(GROUPS, 1.0)
    for name, factor in factors.items():
        for group in ROLES.get(name, (name,)):
            found[group] *= factor
    return np.array([found[group] for group in GROUPS], np.float32)


def group_of(path: str) -> int:
    """Return the index of a parameter's group."""
    if "norm" in path:
        return GROUPS.index("norms")
    return next(index for index, group in enumerate(GROUPS) if group in path)


_threads = ThreadPoolExecutor()


def _begin(function: Callable[..., Any], *args: Any, donate: bool = False) -> Future[Any]:
    """Start compiling a function for arguments of these shapes, in the background."""
    jitted = jax.jit(function, donate_argnums=0 if donate else ())
    return _threads.submit(jitted.lower(*args).compile, compiling._options(True) or None)


class Engine:
    """Trains all trials of one width with one compilation."""

    def __init__(self, base: Spec, inputs: Inputs, width: int, lanes: int, looks: str) -> None:
        self.base, self.inputs, self.width, self.lanes, self.looks = base, inputs, width, lanes, looks
        self.run = self.resolve(Trial(width=width))
        self.model = self.run.program.model
        self.groups = [group_of(leaf.path) for leaf in self.run.program.layout.leaves]
        self.data = jax.tree.map(jnp.asarray, inputs.batches.data)
        self.held_out = jnp.asarray(inputs.evaluation.tokens), jnp.asarray(inputs.evaluation.weights)
        self.probe = jnp.asarray(inputs.evaluation.tokens[0][:8])
        self.items = jnp.asarray(inputs.batches.chunk(0, HORIZON))
        spread = jax.vmap if lanes > 1 else lambda f, **_: f
        lane = jax.eval_shape(lambda: self.lanes_of([Trial(width=width)]))
        state = jax.eval_shape(spread(self._start), lane)
        self.start = _begin(spread(self._start), lane)
        step = spread(self._step, in_axes=(0, 0, None, None, None))
        self.step = _begin(step, state, lane, self.data, self.items, np.int32(0), donate=True)
        self.evaluate = _begin(spread(self._evaluate), state["params"], lane)
        self.look = _begin(spread(self._look), state["params"], lane) if looks else None

    def resolve(self, trial: Trial) -> Run:
        """Resolve the specification of a trial."""
        spec = replace(
            self.base,
            width=trial.width,
            parameterization=trial.parameterization,
            rates=trial.rates,
            learning_rate=trial.rate,
            epsilon=trial.epsilon,
            seed=trial.seed,
        )
        return resolve(spec, vocabulary=self.inputs.batches.vocabulary, data={})

    def lanes_of(self, trials: Sequence[Trial]) -> dict[str, Any]:
        """Return the arguments of several trials; the last trial is repeated to fill all lanes."""
        described = [self.lane(trial) for trial in [*trials, *[trials[-1]] * (self.lanes - len(trials))]]
        return jax.tree.map(jnp.asarray, _stack(described) if self.lanes > 1 else described[0])

    def lane(self, trial: Trial) -> dict[str, Any]:
        """Return the arguments of a trial; schedules are padded to the same shape."""
        table = trial.schedule()
        return {
            "lane": self.resolve(trial).lane,
            "b1": np.float32(trial.b1),
            "b2": np.float32(trial.b2),
            "init": by_group(trial.init),
            "schedule": np.pad(table, ((0, HORIZON - len(table)), (0, 0))),
        }

    def train(self, trials: Sequence[Trial]) -> Iterable[tuple[str, dict[str, Any]]]:
        """Train several trials together; yield their measurements, then their results."""
        start, advance, evaluate = (x.result() for x in (self.start, self.step, self.evaluate))
        lanes = self.lanes_of(trials)
        began, state, losses, sizes, evals = time.perf_counter(), start(lanes), [], [], {}
        last, looks = trials[0].last, trials[0].looks
        for step in range(last + 1):
            if step in looks and self.look is not None:
                found = jax.device_get(self.look.result()(state["params"], lanes))
                for index, trial in enumerate(trials):
                    mine = jax.tree.map(lambda x, index=index: x[index], found) if self.lanes > 1 else found
                    yield "looks", {"label": trial.label, **_key(trial), "step": step, **_plain(mine)}
            if step == last or (step and step % 100 == 0):
                evals[step] = np.atleast_1d(jax.device_get(evaluate(state["params"], lanes)))
            if step < last:
                state, (loss, size) = advance(state, lanes, self.data, self.items, np.int32(step))
                losses.append(loss)
                sizes.append(size)
        losses, sizes = (np.stack(jax.device_get(x), axis=-1) for x in (losses, sizes))
        losses, sizes = (x if self.lanes > 1 else x[None] for x in (losses, sizes))
        seconds = time.perf_counter() - began
        for index, trial in enumerate(trials):
            yield (
                "runs",
                {
                    **dataclasses.asdict(trial),
                    "eval": {step: float(values[index]) for step, values in evals.items()},
                    "loss": [round(float(x), 4) for x in losses[index]],
                    "directions": {
                        group: [float(f"{x:.3g}") for x in sizes[index][i][: max(60, trial.warmup)]]
                        for i, group in enumerate(GROUPS)
                    },
                    "seconds": seconds,
                },
            )

    def _scaled(self, tree: Any, factors: jax.Array) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        scaled = [leaf * factors[group] for leaf, group in zip(leaves, self.groups, strict=True)]
        return structure.unflatten(scaled)

    def _initial(self, lane: dict[str, Any]) -> Any:
        return self._scaled(self.run.program.initial(lane["lane"]), lane["init"])

    def _start(self, lane: dict[str, Any]) -> dict[str, Any]:
        params = self._initial(lane)
        return {"params": params, "adam": self._adam(lane).init(params)}

    def _adam(self, lane: dict[str, Any]) -> optax.GradientTransformation:
        return scale_by_adam(lane["lane"].scales, b1=lane["b1"], b2=lane["b2"], epsilon=lane["lane"].epsilon)

    def _step(self, state: Any, lane: Any, data: Any, items: jax.Array, step: jax.Array) -> tuple[Any, Any]:
        tokens = self.inputs.batches.reader.at(data, items[step])
        scales, rate = lane["lane"].scales, lane["lane"].learning_rate

        def loss(params: Any) -> jax.Array:
            weights = jnp.ones_like(tokens[:, 1:], jnp.float32)
            return self.run.program.loss(scales.effective(params), lane["lane"].attention_scale, tokens, weights)

        value, gradients = jax.value_and_grad(loss)(state["params"])
        directions, adam = self._adam(lane).update(gradients, state["adam"])
        steps = jax.tree.map(lambda u, factor: -u * factor * rate, directions, scales.learning_rate)
        params = optax.apply_updates(state["params"], self._scaled(steps, lane["schedule"][step]))
        return {"params": params, "adam": adam}, (value, self._sizes(directions))

    def _sizes(self, tree: Any) -> jax.Array:
        leaves = jax.tree.leaves(tree)
        found = []
        for group in range(len(GROUPS)):
            mine = [x for x, own in zip(leaves, self.groups, strict=True) if own == group]
            found.append(jnp.sqrt(sum(jnp.sum(x * x) for x in mine) / sum(x.size for x in mine)))
        return jnp.stack(found)

    def _evaluate(self, params: Any, lane: Any) -> jax.Array:
        return self.run.program.evaluate(params, lane["lane"], *self.held_out)

    def _look(self, params: Any, lane: Any) -> dict[str, Any]:
        """Measure how layers changed since the start, and how much of the stream all tokens share."""
        exact, tokens = replace(self.model, dtype="float32"), self.probe[:, :-1]
        initial = jax.lax.optimization_barrier(self._initial(lane))
        before, after = (lane["lane"].scales.effective(x) for x in (initial, params))

        def logits(params: Any) -> jax.Array:
            return exact.logits(params, tokens, lane["lane"].attention_scale)

        with jax.default_matmul_precision("highest"):
            found = measure(logits, before, after, layers=None if self.looks == "deep" else ["readout/kernel"])
            out, uses = capture(logits, after)
            fields = ("output", "output_change", "input_change", "updated", "inherited", "joint", "alpha", "omega", "u")
            layers = {path: {name: getattr(found[path], name) for name in fields} for path in found.paths}
            summary = _logits(out, self.probe[:, 1:]) | _attention(uses, self.model.head_dim, tokens.shape)
            summary["residual"] = _residual(uses, tokens.shape)
        return {"summary": summary, "layers": layers}


def _common(x: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(jnp.mean(x, axis=0))) / jnp.mean(jnp.square(x))


def _logits(logits: jax.Array, labels: jax.Array) -> dict[str, Any]:
    flat = logits.reshape(-1, logits.shape[-1])
    losses = optax.softmax_cross_entropy_with_integer_labels(flat, labels.reshape(-1))
    centered = flat - jnp.mean(flat, axis=-1, keepdims=True)
    shared = jnp.mean(centered, axis=0)
    return {
        "loss": jnp.mean(losses),
        "logits": jnp.sqrt(jnp.mean(centered**2)),
        "logits_shared": jnp.sqrt(jnp.mean(shared**2)),
        "logits_own": jnp.sqrt(jnp.mean((centered - shared) ** 2)),
    }


def _attention(uses: dict[str, Any], head_dim: int, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the spread of attention logits over the visible keys and the entropy of the weights, by block."""
    found = {}
    for block in range(_blocks(uses)):
        name = f"blocks/{block}/attention"
        query, key = (
            uses[f"{name}/{part}/kernel"].outputs.reshape(*shape, -1, head_dim).transpose(0, 2, 1, 3)
            for part in ("query", "key")
        )
        logits = query @ key.transpose(0, 1, 3, 2)
        seen = jnp.tril(jnp.ones(logits.shape[-2:], bool))
        mean = jnp.sum(jnp.where(seen, logits, 0), -1, keepdims=True) / jnp.sum(seen, -1, keepdims=True)
        weights = jax.nn.softmax(jnp.where(seen, logits, -jnp.inf), axis=-1)
        entropy = -jnp.sum(jnp.where(weights > 0, weights * jnp.log(jnp.where(weights > 0, weights, 1)), 0), -1)
        most = jnp.log(jnp.arange(1, shape[1] + 1))
        found[f"attention_spread_{block}"] = jnp.sqrt(jnp.mean(jnp.where(seen, logits - mean, 0) ** 2))
        found[f"attention_entropy_{block}"] = jnp.mean(entropy[..., 1:]) / jnp.mean(most[1:])
    return found


def _residual(uses: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the size of the stream, and its part shared by all tokens, after the embedding and every layer."""
    positions = uses["positions/embedding"].outputs
    x = uses["tokens/embedding"].outputs + jnp.tile(positions, (shape[0] * shape[1] // positions.shape[0], 1))
    found = {"embedding": _moments(x)}
    for block in range(_blocks(uses)):
        x = x + uses[f"blocks/{block}/attention/out/kernel"].outputs
        found[f"attention_{block}"] = _moments(x)
        x = x + uses[f"blocks/{block}/mlp/down/kernel"].outputs
        found[f"mlp_{block}"] = _moments(x)
    return found


def _blocks(uses: dict[str, Any]) -> int:
    return sum(path.endswith("mlp/down/kernel") for path in uses)


def _moments(x: jax.Array) -> dict[str, jax.Array]:
    return {"rms": jnp.sqrt(jnp.mean(x * x)), "common": _common(x)}


def _key(trial: Trial) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in ("width", "rate", "steps", "warmup", "seed", "parameterization")}


def _plain(tree: Any) -> Any:
    def number(x: Any) -> float | None:
        value = float(x)
        return float(f"{value:.4g}") if math.isfinite(value) else None

    return jax.tree.map(number, tree)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *trees)


def packs(trials: Sequence[Trial], lanes: dict[int, int]) -> Iterable[list[Trial]]:
    """Group neighbouring trials that can be trained together."""
    for (width, _, _), alike in itertools.groupby(trials, key=lambda x: (x.width, x.last, x.looks)):
        mine = list(alike)
        size = lanes.get(width, 1)
        yield from (mine[start : start + size] for start in range(0, len(mine), size))


def main() -> None:
    """Train the trials of a plan."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--lanes", type=json.loads, default={}, help="trials to train together, by width, as JSON")
    parser.add_argument("--spec", type=json.loads, default={}, help="changes to the model's Spec, as JSON")
    parser.add_argument(
        "--looks", choices=["light", "deep"], default="light", help="deep: measure every layer, not only the readout"
    )
    chosen = parser.parse_args()
    began = time.perf_counter()
    sizes = {"blocks": 4, "head_dim": 64, "context": 128, "batch": 64, "base_width": 256, "width": 256}
    base = Spec(**{**sizes, **chosen.spec})
    inputs = load_inputs(base)
    trials = [Trial(**{**x, "looks": tuple(x.get("looks", ()))}) for x in json.loads(chosen.plan.read_text())]
    lanes = {int(width): count for width, count in chosen.lanes.items()}
    engines = {
        width: Engine(base, inputs, width, lanes.get(width, 1), looks)
        for width, looks in {
            trial.width: chosen.looks if any(x.looks for x in trials if x.width == trial.width) else ""
            for trial in trials
        }.items()
    }
    speed: dict[int, float] = {}
    chosen.out.mkdir(parents=True, exist_ok=True)
    print(f"compiling after {time.perf_counter() - began:.0f} s, on {jax.devices()[0]}", flush=True)
    for pack in packs(trials, lanes):
        width, count = pack[0].width, pack[0].last
        now = time.perf_counter() - began
        if now + speed.get(width, 0) * count > chosen.seconds:
            print(f"left out: {[x.label for x in pack]} at {width}", flush=True)
            continue
        for kind, line in engines[width].train(pack):
            with (chosen.out / f"{kind}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            if kind == "runs":
                evals = " ".join(f"{step}:{loss:.4f}" for step, loss in line["eval"].items())
                what = f"n {width} r {line['rate']} s {line['steps']} w {line['warmup']} seed {line['seed']}"
                print(f"{time.perf_counter() - began:6.1f} {line['label']:24} {what} {evals}", flush=True)
        taken = (time.perf_counter() - began - now) / count
        speed[width] = min(taken, speed.get(width, math.inf))


if __name__ == "__main__":
    main()
