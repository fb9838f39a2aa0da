"""A plan applied to a module: its initial parameters, and parameter groups for optimizers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import nn

from widthwise.scaling import Planned
from widthwise.scaling.orthogonal import MUON_RATES, formula_of, has_muon
from widthwise.theory import ADAFACTOR, ADAM, SGD, Family
from widthwise.torch.groups import make_groups
from widthwise.torch.head import ScaledHead
from widthwise.torch.model import ModuleBuilder, in_plan
from widthwise.torch.optimizers import Adafactor
from widthwise.torch.sizes import check_has_values, check_shape, measured_sizes, set_size

_OPTIMIZERS: Mapping[Family, tuple[Callable[..., torch.optim.Optimizer], float]] = {
    SGD: (torch.optim.SGD, 0.1),
    ADAM: (torch.optim.AdamW, 1e-3),
    ADAFACTOR: (Adafactor, 1e-2),
}
"""Optimizers for a coordinate check, with rates large enough to see changes and small enough for most models."""


@dataclass(frozen=True, kw_only=True)
class Applied(Planned):
    """What a plan does to a module.

    Attributes:
        builder: How to build and call the model.
        head: The module of a tied readout whose inputs `init_` scales by a hook; None if no hook is needed.
    """

    builder: ModuleBuilder
    head: ScaledHead | None = None

    @property
    def own_notes(self) -> tuple[str, ...]:
        """The factor of a tied readout that a hook applies."""
        if self.head is None:
            return ()
        return (f"{self.head.module} is tied to the embedding; a hook multiplies its inputs by {self.head.factor:.4g}",)

    def init_(self, model: nn.Module) -> nn.Module:
        """Bring the parameters of a freshly initialized model to the planned size, in place, and return the model.

        Every parameter keeps its direction and gets the root mean square (RMS) that it has at the base width, times its
        factor; expert by expert where experts are stacked. Parameters whose shape is the same at the base width do not
        change, and neither do zeros. Calling it twice is the same as calling it once. A model that is sharded or
        compiled can be passed as well, after its own initialization.

        Args:
            model: The model, as `build(width)` returns it.
        """
        found = in_plan(model, self.factors)
        for parameter in self.parameters:
            check_shape(parameter, found[parameter.path], self.width)
            check_has_values(parameter, found[parameter.path])
        for parameter in self.parameters:
            factor = self.factors[parameter.path].init
            if parameter.shape != parameter.base_shape or factor != 1 or parameter.deepens != 1:
                set_size(found[parameter.path], self.base_sizes[parameter.path] * factor, parameter)
        if self.head is not None and self.head.factor != 1:
            self.head.attach(model)
        return model

    @cached_property
    def base_sizes(self) -> Mapping[str, torch.Tensor]:
        """The root mean square of every parameter at the base point, measured on one draw."""
        return measured_sizes(self.builder.deep(self.grown.base_depth).at(self.base_width), self.parameters)

    def groups(
        self,
        model: nn.Module,
        *,
        lr: float,
        weight_decay: float = 0.0,
        eps: float | None = None,
        betas: tuple[float, float] | None = None,
        decays: Callable[[str], bool] | None = None,
        of: Literal["muon", "adam"] | None = None,
    ) -> list[dict[str, Any]]:
        """Return parameter groups for an optimizer of the plan's family; equal ones are merged.

        Pass them to any class of `torch.optim` or to your own. Its other options stay what they are. Schedulers that
        multiply learning rates, such as `LambdaLR`, keep the ratios between groups; a warning tells if anything else
        has changed them.

        Args:
            model: The model.
            lr: The learning rate at the base width.
            weight_decay: A step removes lr · weight_decay of a weight, at every width unless the plan has another
                `decay_rule`. The factors on the learning rates do not apply to it. This needs an optimizer that decays
                weights apart from the gradient, such as AdamW or SGD.
            eps: Epsilon at the base width; by default 1e-8, 1e-30 for Adafactor, and 1e-7 for Muon.
            betas: β₁ and β₂ of Adam at the base batch size. By default groups have them only if the plan's rule for the
                batch size changes β₂, from (0.9, 0.999).
            decays: Which parameters decay, by name; by default all but vectors, such as norm weights and biases.
            of: In a plan for Muon, whose groups: "muon" for hidden matrices, "adam" for all other parameters. Groups
                have `use_muon`, for classes that contain both, and `adjust_lr_fn`, the factor that was planned for.
        """
        return make_groups(
            in_plan(model, self.factors),
            self.parameters,
            self.factors,
            self.exponents.family,
            width=self.width,
            lr=lr,
            weight_decay=weight_decay,
            eps=eps,
            betas=self._betas(betas),
            decays=decays,
            of=of,
        )

    def _betas(self, betas: tuple[float, float] | None) -> tuple[float, float] | None:
        if betas is None and self.grown.everywhere.one_minus_b2 == 1:
            return None
        b1, b2 = (0.9, 0.999) if betas is None else betas
        return b1, self.b2(b2)

    def optimizer(self, model: nn.Module, lr: float | None = None) -> torch.optim.Optimizer:
        """Return the plainest optimizer of the plan's family with its groups: SGD, AdamW without decay, or Adafactor.

        Args:
            model: The model.
            lr: The learning rate at the base width; by default one that most models can be checked with.
        """
        family = self.exponents.family
        if has_muon(family):
            raise ValueError("Muon and Adam are two optimizers: pass plan.groups(model, of=...) to each")
        if family not in _OPTIMIZERS:
            raise ValueError(f"there is no default optimizer of the {family.name} family: pass optimizer=")
        make, default = _OPTIMIZERS[family]
        return make(self.groups(model, lr=default if lr is None else lr))

    def _optimizers(self, model: nn.Module, lr: float | None) -> Sequence[torch.optim.Optimizer]:
        """Return the plainest optimizers of the plan: one, or Muon and AdamW."""
        if not has_muon(self.exponents.family):
            return [self.optimizer(model, lr)]
        formula = formula_of(self.exponents.family)
        if formula not in MUON_RATES or not hasattr(torch.optim, "Muon"):
            raise ValueError(f"this PyTorch has no Muon with a factor of {formula}: pass optimizer=")
        muon_rate, adam_rate = (MUON_RATES[formula], _OPTIMIZERS[ADAM][1]) if lr is None else (lr, lr)
        muon = torch.optim.Muon(self.groups(model, of="muon", lr=muon_rate))
        return [muon, torch.optim.AdamW(self.groups(model, of="adam", lr=adam_rate))]
