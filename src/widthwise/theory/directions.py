"""Directions: which optimizers belong to which family, as one table.

The table of docs/theory.md is made of it, and a test trains with every direction that a library offers and compares how
its updates change with width. So each entry says how to call the optimizer, with `lr` for the learning rate, `params`
for parameters, and `scales` and `layout` for those of a plain model.
"""

from dataclasses import dataclass

from widthwise.theory.families import ADAFACTOR, ADAM, MUON, MUON_MAX, MUON_OUT_IN, SGD, Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """An optimizer that people train with.

    Attributes:
        name: Its name.
        family: Its family.
        jax: How it is called in JAX; empty if neither Optax nor Widthwise has it.
        torch: How it is called in PyTorch; empty if neither PyTorch nor Widthwise has it.
        note: What to know about it.
        by_name: Whether a plan takes its name, for its family.
    """

    name: str
    family: Family
    jax: str = ""
    torch: str = ""
    note: str = ""
    by_name: bool = True


DIRECTIONS = (
    Direction(name="sgd", family=SGD, jax="optax.sgd(lr)", torch="torch.optim.SGD(params, lr)"),
    Direction(
        name="momentum",
        family=SGD,
        jax="optax.sgd(lr, momentum=0.9)",
        torch="torch.optim.SGD(params, lr, momentum=0.9)",
    ),
    Direction(
        name="nesterov",
        family=SGD,
        jax="optax.sgd(lr, momentum=0.9, nesterov=True)",
        torch="torch.optim.SGD(params, lr, momentum=0.9, nesterov=True)",
    ),
    Direction(name="adam", family=ADAM, jax="optax.adam(lr)", torch="torch.optim.Adam(params, lr)"),
    Direction(name="adamw", family=ADAM, jax="optax.adamw(lr)", torch="torch.optim.AdamW(params, lr)"),
    Direction(name="amsgrad", family=ADAM, jax="optax.amsgrad(lr)", torch="torch.optim.Adam(params, lr, amsgrad=True)"),
    Direction(name="nadam", family=ADAM, jax="optax.nadam(lr)", torch="torch.optim.NAdam(params, lr)"),
    Direction(
        name="radam",
        family=ADAM,
        jax="optax.radam(lr)",
        torch="torch.optim.RAdam(params, lr)",
        note="its first 5 steps are not normalized, as SGD's",
    ),
    Direction(name="adamax", family=ADAM, jax="optax.adamax(lr)", torch="torch.optim.Adamax(params, lr)"),
    Direction(name="rmsprop", family=ADAM, jax="optax.rmsprop(lr)", torch="torch.optim.RMSprop(params, lr)"),
    Direction(
        name="adagrad",
        family=ADAM,
        jax="optax.adagrad(lr, initial_accumulator_value=0.0)",
        torch="torch.optim.Adagrad(params, lr)",
        note="Optax's default of 0.1 makes it SGD's as long as gradients are small",
    ),
    Direction(name="adabelief", family=ADAM, jax="optax.adabelief(lr)"),
    Direction(name="adan", family=ADAM, jax="optax.adan(lr)"),
    Direction(name="adopt", family=ADAM, jax="optax.contrib.adopt(lr)"),
    Direction(name="ademamix", family=ADAM, jax="optax.contrib.ademamix(lr)"),
    Direction(
        name="adam_atan2",
        family=ADAM,
        jax="widthwise.optim.adam_atan2(lr, scales)",
        torch="widthwise.torch.AdamAtan2(params, lr)",
    ),
    Direction(name="sign", family=ADAM, jax="optax.sign_sgd(lr)"),
    Direction(name="signum", family=ADAM, jax="optax.signum(lr)"),
    Direction(name="lion", family=ADAM, jax="optax.lion(lr)"),
    Direction(
        name="schedule_free_adamw",
        family=ADAM,
        jax="optax.contrib.schedule_free_adamw(lr)",
        note="Schedule-Free has the family of its base",
    ),
    Direction(
        name="adafactor without parameter scaling",
        family=ADAM,
        jax="optax.adafactor(lr, multiply_by_parameter_scale=False)",
        by_name=False,
    ),
    Direction(name="soap", family=ADAM, note="Adam's update in another basis, which keeps its Frobenius norm"),
    Direction(
        name="sophia",
        family=ADAM,
        jax="optax.contrib.sophia(lr)",
        note="only while nearly all coordinates are clipped, as in the test",
        by_name=False,
    ),
    Direction(
        name="adafactor",
        family=ADAFACTOR,
        jax="optax.adafactor(lr)",
        torch="widthwise.torch.Adafactor(params, lr)",
        note="torch.optim.Adafactor caps its learning rate",
    ),
    Direction(name="adam_ps", family=ADAFACTOR, jax="widthwise.optim.adam_ps(lr, scales, layout)"),
    Direction(
        name="lamb", family=ADAFACTOR, jax="optax.lamb(lr)", note="norms are taken of whole matrices", by_name=False
    ),
    Direction(name="lars", family=ADAFACTOR, jax="optax.lars(lr)", note="the same", by_name=False),
    Direction(
        name="muon, √max(1, out/in)",
        family=MUON,
        jax="optax.contrib.muon(lr)",
        torch="torch.optim.Muon(params, lr)",
        by_name=False,
    ),
    Direction(name="muon, √(out/in)", family=MUON_OUT_IN, by_name=False),
    Direction(
        name="muon, 0.2·√max(out, in)",
        family=MUON_MAX,
        jax="optax.contrib.muon(lr, consistent_rms=0.2)",
        torch='torch.optim.Muon(params, lr, adjust_lr_fn="match_rms_adamw")',
        by_name=False,
    ),
)
"""Every direction whose family is known."""
