"""`widthwise check`: do activations keep their size as the network gets wider, and if not, what to change."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import jax
import jax.numpy as jnp
from rich import box
from rich.table import Table
from rich.text import Text

from widthwise.cli.arguments import count, named, positive, unset
from widthwise.cli.output import Output
from widthwise.cli.status_line import StatusLine
from widthwise.fit import Estimate
from widthwise.measure import CoordinateCheck, LayerCheck, Subject, advice, check_coordinates, warning
from widthwise.measure.coordinates import SEEDS, STEPS, TOLERANCE, WIDTHS
from widthwise.models import MLP, draw, prescribe
from widthwise.optim import OPTIMIZERS, Optimizer
from widthwise.theory import ALIGNMENTS, MUP, PARAMETERIZATIONS, Parameterization
from widthwise.train import Spec, load_inputs, subject_of
from widthwise.train.spec import DATA, GLOBAL, describe, exponents_of

FAILED = 1


@dataclass(frozen=True, kw_only=True)
class Check:
    """Train a few steps at several widths and judge, layer by layer, whether sizes stay put.

    Activations and their changes must neither grow nor shrink with width, logits and their change must not grow. The
    exit code is 1 if a layer fails. For models of your own see docs/alignment.md.
    """

    model: Annotated[str, named({"transformer": "transformer", "mlp": "mlp"})] = "transformer"
    """Which model."""
    widths: tuple[int, ...] = WIDTHS
    """The widths to compare."""
    parameterization: Annotated[Parameterization, named(PARAMETERIZATIONS)] = MUP
    """Which initialization and multipliers."""
    optimizer: Annotated[Optimizer, named(OPTIMIZERS)] = OPTIMIZERS["adam"]
    """Which optimizer."""
    alignment: Annotated[str, named({name: name for name in (*ALIGNMENTS, GLOBAL)})] = "full"
    """The alignment assumed for the learning rates; global for one rate at every width."""
    rates: Annotated[str | None, unset("those of the alignment")] = None
    """Exponents of your own for the learning rates of embedding, hidden and readout, such as 0,-1,-1."""
    learning_rate: Annotated[float, positive("X")] = 3e-3
    """The base learning rate; about the best one at the base width."""
    base_width: Annotated[int | None, count("N", least=1), unset("the smallest")] = None
    """The width at which the learning rate is what it says."""
    seeds: Annotated[int, count("N", least=1)] = SEEDS
    """Runs of each width; two or more for confidence intervals."""
    steps: Annotated[int, count("N", least=1)] = STEPS
    """Training steps."""
    tolerance: Annotated[float, positive("X")] = TOLERANCE
    """How far from its bound a slope may be."""
    blocks: Annotated[int, count("N", least=1)] = 2
    """Blocks of the transformer, or hidden layers of the MLP."""
    head_dim: Annotated[int, count("N", least=1)] = 16
    """Head dimension of the transformer."""
    context: Annotated[int, count("N", least=1)] = 64
    """Length of the transformer's sequences."""
    batch: Annotated[int, count("N", least=1)] = 16
    """Examples in a batch."""
    data: Annotated[str, named({name: name for name in DATA if name in ("stdlib", "synthetic")})] = "stdlib"
    """What the transformer trains on."""
    json: bool = False
    """Print a JSON object."""

    def run(self) -> int:
        """Train, judge, and print the verdict."""
        if len(set(self.widths)) < 2 or min(self.widths) < 1:
            raise ValueError(f"widths are {', '.join(map(str, self.widths))}: expected two or more different ones")
        status = StatusLine(quiet=self.json)
        build = self._transformer(status) if self.model == "transformer" else self._mlp()
        result = check_coordinates(
            build,
            widths=self.widths,
            seeds=self.seeds,
            steps=self.steps,
            tolerance=self.tolerance,
            progress=lambda width, seed: status.show(f"training width {width}, seed {seed + 1} of {self.seeds}"),
        )
        status.clear()
        if self.json:
            print(json.dumps(result.to_json(), indent=2))
        else:
            self._show(result)
        return 0 if result.passed else FAILED

    def _spec(self) -> Spec:
        return Spec(
            width=min(self.widths),
            base_width=self.base_width or min(self.widths),
            blocks=self.blocks,
            head_dim=self.head_dim if self.model == "transformer" else 1,
            context=self.context,
            batch=self.batch,
            data=self.data,
            optimizer=self.optimizer.name,
            parameterization=self.parameterization.name,
            alignment=self.alignment,
            rates=self.rates,
            learning_rate=self.learning_rate,
            eval_batches=1,
        )

    def _transformer(self, status: StatusLine) -> Callable[[int], Subject]:
        spec = self._spec()
        for width in self.widths:
            if width % self.head_dim:
                raise ValueError(f"width is {width}: expected a multiple of the head dimension {self.head_dim}")
        inputs = load_inputs(spec, progress=lambda done: status.show(f"tokenizing: {done / 1e6:.1f} MB"))
        return subject_of(spec, inputs)

    def _mlp(self) -> Callable[[int], Subject]:
        """Fit random targets: what is wrong with the exponents shows on any task."""
        spec = self._spec()
        exponents = exponents_of(spec)

        def build(width: int) -> Subject:
            model = MLP(width=width, hidden_layers=self.blocks)
            plan = prescribe(model, exponents, base_width=spec.base_width)
            keys = jax.random.split(jax.random.key(0))
            examples = (
                jax.random.normal(keys[0], (self.batch, model.inputs)),
                jax.random.normal(keys[1], (self.batch, model.outputs)),
            )
            return Subject.of(
                plan,
                lambda seed: plan.scales.initial(draw(model, jax.random.key(seed))),
                model=model.logits,
                loss=lambda logits, targets: jnp.mean(jnp.square(logits - targets)),
                examples=examples,
                optimizer=self.optimizer.build(self.learning_rate, plan, plan.layout),
            )

        return build

    def _show(self, result: CoordinateCheck) -> None:
        output, spec = Output(), self._spec()
        output.lines(
            f"{self.model}, {self.parameterization.name}, {self.optimizer.name}, {describe(spec.setting)}, "
            f"{result.steps} steps at widths {', '.join(map(str, result.widths))}, {_counted(result.seeds, 'seed')}.",
            "Slopes of log size against log width [95 % interval over seeds]; expected: by the theory, with the",
            "alignment measured in these runs, and through which term of the change.",
            "",
        )
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        for heading in ("layer", "role", "size", "change", "expected", "through", "verdict"):
            table.add_column(heading, justify="right" if heading in ("size", "change", "expected") else "left")
        for layer in result.layers:
            table.add_row(
                _short(layer.layer),
                layer.role.value,
                _slope(layer.size),
                _slope(layer.change),
                _number(layer.expected.slope),
                layer.expected.term,
                _verdict(layer),
            )
        output.table(table)
        output.lines("")
        output.lines(*_grouped((layer.layer, advice(layer, result.exponents)) for layer in result.layers))
        output.lines(*_grouped((layer.layer, warning(layer)) for layer in result.layers if layer.passed))
        if result.unseen:
            output.lines(f"Not seen to act, so nothing is known of them: {', '.join(result.unseen)}.")
        passed = len(result.layers) - len(result.failed)
        output.lines(f"{'PASS' if result.passed else 'FAIL'}: {passed} of {len(result.layers)} layers pass.")
        if not all(layer.settled for layer in result.layers):
            output.lines(f"? an interval reaches across the tolerance of {self.tolerance:g}: more --seeds would tell.")
        output.write()


def _grouped(said: Iterable[tuple[str, str | None]]) -> list[str]:
    """Say what there is to say, once for all layers that it holds for."""
    layers: dict[str, list[str]] = {}
    for layer, what in said:
        if what is not None:
            layers.setdefault(what, []).append(_short(layer))
    return [f"{', '.join(names)}: {what}." for what, names in layers.items()]


def _short(path: str) -> str:
    return path.removesuffix("/kernel").removesuffix("/embedding")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value + 0:.2f}".replace("-0.00", "0.00")


def _slope(slope: Estimate) -> str:
    if not math.isfinite(slope.low):
        return _number(slope.value)
    return f"{_number(slope.value)} [{_number(slope.low)}, {_number(slope.high)}]"


def _verdict(layer: LayerCheck) -> Text:
    word = "pass" if layer.passed else "FAIL"
    return Text(word if layer.settled else f"{word} ?", style="green" if layer.passed else "bold red")
