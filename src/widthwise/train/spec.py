"""The specification of a run: everything that determines what it computes, as one frozen value.

The id of a run is the hash of what it *computes*: two settings that result in the same numbers are the same run.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from widthwise.models import Transformer, prescribe
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Constants, Prescription, PyTree, Scales
from widthwise.scaling import decay_factor
from widthwise.theory import (
    DECAY_RULES,
    INDEPENDENT,
    PARAMETERIZATIONS,
    RATE_RULES,
    Assessment,
    Layer,
    Parameterization,
    RateRule,
    Role,
)
from widthwise.theory.exact import HALF
from widthwise.theory.rates import read_exponents, read_rates
from widthwise.train.cost import flops_per_step
from widthwise.train.program import Lane, Program

DATA = ("stdlib", "synthetic", "text", "c4")
DTYPES = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One training run."""

    width: int = 128
    """Width of the model; a multiple of the head dimension."""
    blocks: int = 4
    """Number of transformer blocks."""
    head_dim: int = 32
    """Dimension of an attention head, the same at every width."""
    context: int = 128
    """Sequence length in tokens."""
    vocabulary: int | None = None
    """Vocabulary size of the model; by default that of the tokenizer."""
    data: str = "stdlib"
    """Training data: stdlib (Python's own source code, no download), synthetic, text, or c4."""
    paths: tuple[str, ...] = ()
    """Files, folders or patterns with the text; for c4, local shards."""
    tokenizer: str = "bytes"
    """Tokenizer: bytes, or the path of a SentencePiece model."""
    batch: int = 32
    """Number of sequences in a batch."""
    steps: int = 300
    """Number of training steps."""
    warmup: int = 30
    """Number of linear warm-up steps, followed by cosine decay to 0."""
    optimizer: str = "adam"
    """Optimizer: sgd, adam, adam_atan2, adam_ps (Adam with parameter scaling), adafactor, muon, muon_out_in, muon_max.
    Muon is for hidden matrices, with a factor √max(1, out/in), √(out/in) or √max(out, in); Adam trains the rest."""
    parameterization: str = "standard"
    """Parameterization: standard, ntk, mup or mean_field."""
    alignment: str = "full"
    """Alignment assumed for the learning rates: full, none or tensor_programs; or global, for one rate everywhere."""
    rates: str | None = None
    """Your own learning-rate exponents for embedding, hidden layers and readout, such as 0,-1,-1."""
    small_readout: bool = False
    """Start with a readout that is smaller by (width / base width)^-1/2, as muP's is; for standard and ntk."""
    base_width: int = 128
    """Width at which learning rate and epsilon are used unscaled: where they were tuned."""
    learning_rate: float = 3e-3
    """Base learning rate: the peak of the schedule at the base width."""
    epsilon: float | None = None
    """Epsilon at the base width; by default that of the optimizer."""
    epsilon_per_parameter: bool = False
    """Scale epsilon for each parameter, with the exponents of the gradients."""
    weight_decay: float = 0.0
    """Weight decay per step at the peak of the schedule at the base width, independent of the base learning rate."""
    decay_rule: str = INDEPENDENT.name
    """How weight decay changes with width: independent (not at all), coupled (as the layer's learning rate), sqrt (as
    that times sqrt(n) in hidden layers, and none elsewhere) or inverse (as 1/n)."""
    embedding_constant: float = 1.0
    """Constant factor on the learning rate of embeddings."""
    hidden_constant: float = 1.0
    """Constant factor on the learning rate of hidden layers."""
    readout_constant: float = 1.0
    """Constant factor on the learning rate of the readout."""
    seed: int = 0
    """Seed of the initialization."""
    data_seed: int = 0
    """Seed of the order of the data."""
    dtype: str = "auto"
    """Precision: float32, bfloat16, or auto (bfloat16 on a GPU, else float32)."""
    eval_batches: int = 8
    """Number of held-out batches to evaluate on."""

    def __post_init__(self) -> None:
        for name in ("width", "blocks", "head_dim", "context", "batch", "steps", "base_width", "eval_batches"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        for name in ("warmup", "seed", "data_seed", "weight_decay"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise ValueError(f"{name} is {value}: expected a finite number, 0 or more")
        for name in ("learning_rate", "embedding_constant", "hidden_constant", "readout_constant"):
            if not 0 < (value := getattr(self, name)) < math.inf:
                raise ValueError(f"{name} is {value}: expected a finite number above 0")
        for name, known in (
            ("data", DATA),
            ("optimizer", OPTIMIZERS),
            ("parameterization", PARAMETERIZATIONS),
            ("alignment", RATE_RULES),
            ("decay_rule", DECAY_RULES),
            ("dtype", DTYPES),
        ):
            if (value := getattr(self, name)) not in known:
                own = name == "data" and ("." in value or "/" in value or os.path.exists(value))
                hint = f"; for your own text: --data text --paths {value}" if own else ""
                raise ValueError(f"{name} is {value!r}: expected one of {', '.join(known)}{hint}")
        if self.width % self.head_dim:
            raise ValueError(f"width is {self.width}: expected a multiple of the head dimension {self.head_dim}")
        if self.small_readout and PARAMETERIZATIONS[self.parameterization].readout.total >= 1:
            raise ValueError(f"small_readout is for standard and ntk: the readout of {self.parameterization} is small")
        if self.rates is not None:
            read_exponents(self.rates)  # raises if they cannot be read
        if self.epsilon is not None and OPTIMIZERS[self.optimizer].epsilon is None:
            raise ValueError(f"epsilon is {self.epsilon}: {self.optimizer} has no epsilon")
        if self.epsilon is not None and not 0 <= self.epsilon < math.inf:
            raise ValueError(f"epsilon is {self.epsilon}: expected a finite number, 0 or more")
        if (self.data == "text") and not self.paths:
            raise ValueError("data is 'text' but there are no paths: name files, folders or patterns")
        if self.paths and self.data not in ("text", "c4"):
            raise ValueError(f"paths are given but data is {self.data!r}: expected text or c4")

    @property
    def rate_rule(self) -> RateRule:
        """How layers' learning rates follow from the base rate."""
        return read_rates(self.alignment) if self.rates is None else read_exponents(self.rates)

    @property
    def constants(self) -> Constants:
        """The factors on the learning rates of the roles."""
        return Constants(embedding=self.embedding_constant, hidden=self.hidden_constant, readout=self.readout_constant)

    def with_constants(self, constants: Constants) -> "Spec":
        """Return the specification with other constants."""
        return dataclasses.replace(
            self,
            embedding_constant=constants.embedding,
            hidden_constant=constants.hidden,
            readout_constant=constants.readout,
        )

    def exponents(self) -> Assessment:
        """Return the exponents of every layer with the theory's verdict."""
        network = _network(self.parameterization, self.small_readout)
        return self.rate_rule.exponents(network, OPTIMIZERS[self.optimizer].family)

    def transformer(self, vocabulary: int, dtype: str = "float32") -> Transformer:
        """Return the model, for a tokenizer with this many tokens."""
        room = vocabulary if self.vocabulary is None else self.vocabulary
        if room < vocabulary:
            raise ValueError(f"vocabulary is {room}: the tokenizer has {vocabulary} tokens")
        return Transformer(
            width=self.width,
            blocks=self.blocks,
            head_dim=self.head_dim,
            context=self.context,
            vocabulary=room,
            dtype=dtype,
        )

    @property
    def dtype_here(self) -> str:
        """The precision on the device of this process."""
        return self.dtype if self.dtype != "auto" else "bfloat16" if jax.default_backend() == "gpu" else "float32"

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Spec":
        """Read a specification; raise for unknown keys."""
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(
                f"{unknown[0]!r} is not part of a run's specification: expected {', '.join(sorted(known))}"
            )
        return cls(**{**values, "paths": tuple(values.get("paths", ()))})

    def to_json(self) -> dict[str, Any]:
        """Return the specification as values for `json.dumps`."""
        values = {**dataclasses.asdict(self), "paths": list(self.paths)}
        # Studies from before these were options must compare equal.
        for name, default in (("small_readout", False), ("decay_rule", INDEPENDENT.name)):
            if values[name] == default:
                del values[name]
        return values


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A resolved specification.

    Attributes:
        id: The hash of the identity.
        spec: The specification.
        program: The program to compile.
        lane: The data of this run.
        prescription: What the parameterization prescribes.
        identity: Everything that decides what is computed, in numbers.
        names: What the specification cannot tell, such as the name of its constants; kept with the request.
    """

    id: str
    spec: Spec
    program: Program
    lane: Lane
    prescription: Prescription
    identity: dict[str, Any]
    names: Mapping[str, Any] = field(default_factory=dict)

    @property
    def probe(self) -> bool:
        """Whether it measures alignment during training."""
        return "probe" in self.identity

    @property
    def request(self) -> dict[str, Any]:
        """What a study keeps of the request for this run."""
        return {**self.spec.to_json(), **self.names, **({"probe": True} if self.probe else {})}

    @property
    def portable(self) -> Spec:
        """The specification with its precision spelled out: "auto" may mean something else on another machine."""
        return dataclasses.replace(self.spec, dtype=self.program.model.dtype)

    @property
    def flops(self) -> float:
        """The FLOPs of its training."""
        return self.program.steps * flops_per_step(self.program.model, self.spec.batch, self.program.optimizer)


def resolve(spec: Spec, *, vocabulary: int, data: dict[str, Any], probe: bool = False) -> Run:
    """Resolve a specification for data with this vocabulary and fingerprint.

    A run that measures alignment (`probe`) is a different run, because it computes more.
    """
    model = spec.transformer(vocabulary, spec.dtype_here)
    optimizer = OPTIMIZERS[spec.optimizer]
    plan, constant_epsilon = _prescribed(
        model,
        spec.parameterization,
        spec.small_readout,
        spec.optimizer,
        spec.rate_rule,
        spec.base_width,
        spec.constants,
    )
    epsilon = spec.epsilon if spec.epsilon is not None else optimizer.epsilon
    lane = Lane(
        seed=spec.seed,
        scales=plan.scales if spec.epsilon_per_parameter else constant_epsilon,
        attention_scale=model.attention_scale(PARAMETERIZATIONS[spec.parameterization]),
        learning_rate=spec.learning_rate,
        epsilon=0.0 if epsilon is None else epsilon,
        weight_decay=_decays(spec, plan),
    )
    program = Program(model=model, optimizer=optimizer, layout=plan.layout, steps=spec.steps, warmup=spec.warmup)
    identity = _identity(spec, program, lane, data) | ({"probe": True} if probe else {})
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    run_id = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    return Run(id=run_id, spec=spec, program=program, lane=lane, prescription=plan, identity=identity)


def _decays(spec: Spec, plan: Prescription) -> PyTree:
    """Return what a step removes of each parameter.

    Constants on learning rates do not change with width, so rules of decay do not follow them.
    """
    rule, growth = DECAY_RULES[spec.decay_rule], spec.width / spec.base_width

    def removed(role: Role | None, rate: float) -> float:
        constant = 1.0 if role is None else spec.constants.of(role)
        return spec.weight_decay * decay_factor(rule, role, rate=rate / constant, growth=growth)

    pairs = zip(plan.layout.leaves, jax.tree.leaves(plan.scales.learning_rate), strict=True)
    return plan.layout.tree([removed(leaf.role, rate) for leaf, rate in pairs])


@functools.lru_cache(maxsize=256)
def _prescribed(
    model: Transformer,
    parameterization: str,
    small_readout: bool,
    optimizer: str,
    rates: RateRule,
    base_width: int,
    constants: Constants,
) -> tuple[Prescription, Scales]:
    """Prescribe once for all learning rates and seeds; also return the scales with a constant epsilon."""
    network = _network(parameterization, small_readout)
    exponents = rates.exponents(network, OPTIMIZERS[optimizer].family)
    plan = prescribe(model, exponents, base_width=base_width, constants=constants)
    if small_readout:
        plan = _with_usual_readout_at(plan, base_width)
    return plan, plan.scales.with_constant_epsilon()


def _network(parameterization: str, small_readout: bool) -> Parameterization:
    network = PARAMETERIZATIONS[parameterization]
    if not small_readout:
        return network
    readout = Layer(network.readout.a, network.readout.b + HALF)
    return dataclasses.replace(network, readout=readout, name=f"{network.name} with a small readout")


def _with_usual_readout_at(plan: Prescription, base_width: int) -> Prescription:
    """Return a plan whose small readout has its usual size at the base width."""
    stds = zip(plan.layout.leaves, jax.tree.leaves(plan.scales.init_std), strict=True)
    grown = [std * base_width**0.5 if leaf.role is Role.READOUT else std for leaf, std in stds]
    return dataclasses.replace(plan, scales=dataclasses.replace(plan.scales, init_std=plan.layout.tree(grown)))


def _identity(spec: Spec, program: Program, lane: Lane, data: dict[str, Any]) -> dict[str, Any]:
    """Return what is computed: the scalars of every parameter, not the names they were derived from."""
    scales = lane.scales
    columns = (scales.init_std, scales.multiplier, scales.learning_rate, scales.epsilon, scales.floor)
    leaves = program.layout.leaves
    rows = zip(leaves, *(jax.tree.leaves(column) for column in columns), strict=True)
    parameters = {
        leaf.path: [
            _number(init),
            _number(multiplier),
            _number(rate * lane.learning_rate),
            None if program.optimizer.epsilon is None else _number(eps * lane.epsilon),
            _number(floor) if program.optimizer.by_layer else None,
        ]
        for leaf, init, multiplier, rate, eps, floor in rows
    }
    of_each = {leaf.path: _number(x) for leaf, x in zip(leaves, jax.tree.leaves(lane.weight_decay), strict=True)}
    decays = set(of_each.values())
    return {
        "model": dataclasses.asdict(program.model),
        "optimizer": program.optimizer.name,
        "parameters": parameters,
        "attention_scale": _number(lane.attention_scale),
        "weight_decay": decays.pop() if len(decays) == 1 else of_each,
        "steps": program.steps,
        "warmup": program.warmup,
        "batch": spec.batch,
        "seed": spec.seed,
        "data": data,
        "data_seed": spec.data_seed,
        "eval_batches": spec.eval_batches,
    }


def _number(value: Any) -> float:
    """Round off what depends on the order of multiplication, so that equal settings compare equal."""
    return float(f"{float(value):.12g}")
