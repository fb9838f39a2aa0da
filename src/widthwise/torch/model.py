"""Build and call a user's model, at the base width for real and at another width as shapes."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from widthwise.torch.shapes import Building, Shapes

WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""What wrappers of PyTorch (compile, FSDP, activation checkpointing) add to the names of parameters."""


@dataclass(frozen=True, kw_only=True)
class ModuleBuilder:
    """How to build and call a user's model.

    Attributes:
        build: The user's function from a width to a module.
        example: The arguments of a call: a tensor, a tuple of arguments, or a dict of keyword arguments.
        call: The forward pass, from a model and the example; None to call the model itself.
        depth: The depth to build it with; None for a model that is not built with one.
    """

    build: Callable[..., nn.Module]
    example: Any
    call: Callable[..., Any] | None = None
    depth: int | None = None

    def deep(self, depth: int | None) -> "ModuleBuilder":
        """Return the same at another depth."""
        return replace(self, depth=depth)

    def _built(self, width: int) -> nn.Module:
        return _expect_module(self.build(width) if self.depth is None else self.build(width, depth=self.depth), width)

    @property
    def has_example(self) -> bool:
        """Whether there is an example to trace a forward pass with."""
        return not (isinstance(self.example, tuple | dict) and not self.example)

    def at(self, width: int, seed: int = 0) -> nn.Module:
        """Build the model at a width, with random numbers that depend on the seed alone."""
        with kept_randomness():
            seed_all(seed)
            return self._built(width)

    def shapes_at(self, width: int, shapes: Shapes) -> nn.Module:
        """Build the model at a width without its memory."""
        try:
            with kept_randomness(), warnings.catch_warnings(), Building():
                warnings.simplefilter("ignore")  # building the base model shows them
                model = self._built(width)
            return shapes.of(model)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            if "meta" not in why.lower() and not isinstance(error, AssertionError):
                raise ValueError(f"build({width}) failed, though not at the base width ({why})") from error
            raise ValueError(
                f"build({width}) failed ({why}). Large parameters have no values in a plan: expected a width "
                "that the model can have, and a function that only creates and initializes parameters"
            ) from error

    def run(self, model: nn.Module) -> Any:
        """Call the model on the example."""
        try:
            return self._run(model)
        except Exception as error:
            error.add_note("The model was called with the example, to see how it uses its parameters")
            raise

    def _run(self, model: nn.Module) -> Any:
        if self.call is not None:
            return self.call(model, *self.arguments)
        if isinstance(self.example, dict):
            return model(**self.example)
        return model(*self.arguments)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The example as arguments."""
        return self.example if isinstance(self.example, tuple) else (self.example,)


def named(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters by name, as `named_parameters` does, without what wrappers add to names."""
    found: dict[str, nn.Parameter] = {}
    for name, parameter in model.named_parameters():
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")
        found[name] = parameter
    return found


def in_plan(model: nn.Module, known: Mapping[str, Any]) -> dict[str, nn.Parameter]:
    """Return the parameters of a model by their names in a plan; raise if the plan has others."""
    found = named(model)
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        found = {name.removeprefix("module."): parameter for name, parameter in found.items()}
    for name in found:
        if name not in known:
            some = ", ".join(list(known)[:5])
            raise ValueError(f"{name!r} is not a parameter of the plan: expected the planned model's, {some}, …")
    for name in known:
        if name not in found:
            raise ValueError(f"the model has no parameter {name!r}: expected the model that was planned")
    return found


@contextmanager
def kept_randomness() -> Iterator[None]:
    """Leave the random numbers that are drawn afterwards as they would have been."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=list(devices)):
        yield


def seed_all(seed: int) -> None:
    """Seed the random numbers of the devices in use, without initializing others."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def _expect_module(built: Any, width: int) -> nn.Module:
    if not isinstance(built, nn.Module):
        raise ValueError(f"build({width}) returned {type(built).__name__}: expected a torch.nn.Module")
    return built
