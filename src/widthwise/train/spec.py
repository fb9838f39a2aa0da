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

from widthwise.models import Transformer, deepen, prescribe
from widthwise.optim import OPTIMIZERS
from widthwise.parameterize import Constants, Prescription, PyTree, Scales
from widthwise.scaling import decay_factor
from widthwise.theory import (
    DECAY_RULES,
    INDEPENDENT,
    PARAMETERIZATIONS,
    PLAIN_DEPTH,
    RATE_RULES,
    Assessment,
    AxisFactors,
    Layer,
    Parameterization,
    RateRule,
    Role,
    depth_exponents,
    read_batch_rule,
    read_depth_rule,
    read_token_rule,
)
from widthwise.theory.axes import CONSTANT
from widthwise.theory.exact import HALF
from widthwise.theory.rates import read_exponents, read_rates
from widthwise.train.cost import flops_per_step
from widthwise.train.program import Lane, Program

DATA = ("stdlib", "synthetic", "text", "c4")
DTYPES = ("auto", "float32", "bfloat16")
HOW_COMPUTED = ("remat", "for_gpu")
"""Fields of a model that change how its numbers are computed and not the numbers: a run is the same with any."""
LARGEST_SEED = 2**31 - 1
"""The largest one that JAX takes as an argument of a compiled program."""


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
    depth_rule: str = PLAIN_DEPTH.name
    """What changes with the number L of blocks: completep (residual branches are multiplied by L^-1), sqrt (by L^-1/2),
    each with the learning rates that belong to it, or constant (nothing); or your own power, such as 3/4."""
    base_blocks: int = 4
    """Number of blocks at which nothing changes."""
    batch_rule: str = CONSTANT.name
    """What changes with the batch size: sde, sde2, sqrt, timescale, scion, or constant (nothing); or your own power of
    the learning rate, such as 1/2."""
    base_batch: int = 32
    """Batch size at which nothing changes."""
    token_rule: str = CONSTANT.name
    """What changes with the number of training tokens: horizon, timescale, scion, or constant (nothing); or your own
    power of the learning rate, such as -1/3."""
    base_tokens: int = 300 * 32 * 128
    """Number of training tokens (steps x batch x context) at which nothing changes."""
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
        sizes = ("width", "blocks", "head_dim", "context", "batch", "steps", "eval_batches")
        for name in (*sizes, "base_width", "base_blocks", "base_batch", "base_tokens"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        for name in ("warmup", "seed", "data_seed", "weight_decay"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise ValueError(f"{name} is {value}: expected a finite number, 0 or more")
        if self.seed > LARGEST_SEED:
            raise ValueError(f"seed is {self.seed}: expected {LARGEST_SEED} or less")
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
        # Each raises if its rule cannot be read, or cannot be followed.
        depth_exponents(read_depth_rule(self.depth_rule), OPTIMIZERS[self.optimizer].family)
        if (b2 := self.b2) is not None and not 0 <= b2 < 1:
            raise ValueError(
                f"batch is {self.batch}, {self.batch / self.base_batch:g} times the base batch: rule {self.batch_rule} "
                f"makes β₂ {b2:g}, expected a number from 0 to 1; use a larger --base-batch"
            )
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

    @property
    def tokens(self) -> int:
        """The number of tokens to train on."""
        return self.steps * self.batch * self.context

    @property
    def factors(self) -> tuple[AxisFactors, AxisFactors]:
        """What batch size and number of tokens change."""
        batch, tokens = read_batch_rule(self.batch_rule), read_token_rule(self.token_rule)
        return batch.factors(self.batch / self.base_batch), tokens.factors(self.tokens / self.base_tokens)

    @property
    def b2(self) -> float | None:
        """The decay of the second moment, if a rule changes it."""
        default, factor = OPTIMIZERS[self.optimizer].b2, math.prod(each.one_minus_b2 for each in self.factors)
        return None if default is None or factor == 1 else 1 - factor * (1 - default)

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
        for name in _ADDED:
            if values[name] == _DEFAULTS[name]:
                del values[name]
        return values


_ADDED = (
    *("small_readout", "decay_rule"),
    *("depth_rule", "base_blocks", "batch_rule", "base_batch", "token_rule", "base_tokens"),
)
"""Options that are left out of requests where they have their defaults."""
_DEFAULTS = {option.name: option.default for option in dataclasses.fields(Spec)}


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
        spec.depth_rule,
        spec.base_blocks,
    )
    epsilon = spec.epsilon if spec.epsilon is not None else optimizer.epsilon
    batch, tokens = spec.factors
    lane = Lane(
        seed=spec.seed,
        scales=plan.scales if spec.epsilon_per_parameter else constant_epsilon,
        attention_scale=model.attention_scale(PARAMETERIZATIONS[spec.parameterization]),
        learning_rate=spec.learning_rate * (batch.learning_rate * tokens.learning_rate),
        epsilon=0.0 if epsilon is None else epsilon * (batch.epsilon * tokens.epsilon) ** optimizer.epsilon_power,
        weight_decay=_decays(spec, plan),
    )
    program = Program(
        model=model, optimizer=optimizer, layout=plan.layout, steps=spec.steps, warmup=spec.warmup, b2=spec.b2
    )
    identity = _identity(spec, program, lane, data) | ({"probe": True} if probe else {})
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    run_id = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    return Run(id=run_id, spec=spec, program=program, lane=lane, prescription=plan, identity=identity)


def _decays(spec: Spec, plan: Prescription) -> PyTree:
    """Return what a step removes of each parameter.

    Constants on learning rates do not change with width, so rules of decay do not follow them.
    """
    rule, growth = DECAY_RULES[spec.decay_rule], spec.width / spec.base_width
    decay = spec.weight_decay * math.prod(factors.removed for factors in spec.factors)

    def removed(role: Role | None, rate: float) -> float:
        constant = 1.0 if role is None else spec.constants.of(role)
        return decay * decay_factor(rule, role, rate=rate / constant, growth=growth)

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
    depth_rule: str,
    base_blocks: int,
) -> tuple[Prescription, Scales]:
    """Prescribe once for all learning rates and seeds; also return the scales with a constant epsilon."""
    network = _network(parameterization, small_readout)
    exponents = rates.exponents(network, OPTIMIZERS[optimizer].family)
    plan = prescribe(model, exponents, base_width=base_width, constants=constants)
    if small_readout:
        plan = _with_usual_readout_at(plan, base_width)
    if depth_rule != PLAIN_DEPTH.name and model.blocks != base_blocks:
        depth = depth_exponents(read_depth_rule(depth_rule), OPTIMIZERS[optimizer].family)
        plan = deepen(model, plan, depth, ratio=model.blocks / base_blocks)
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
        "model": {name: x for name, x in dataclasses.asdict(program.model).items() if name not in HOW_COMPUTED},
        "optimizer": program.optimizer.name,
        **({} if program.b2 is None else {"b2": _number(program.b2)}),
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
