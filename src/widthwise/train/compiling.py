"""How training is compiled: with the options that suit a device, and, where that is known before, ahead of time.

A run needs several programs, and each would be compiled when it is first called: one after another, while most cores
and the device wait. What a call will need is known before, so compilations can go on side by side.
"""

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
from jax.api_util import shaped_abstractify

# On an H200, against the compiler's own choice: with matrix products by cuBLAS alone, setting a program up took 9 to
# 12 s in place of 13 to 20, and steps were 0.6 to 1.4 % faster (widths 128 and 512 in lanes, 512 and 2048 alone). With
# cuBLASLt the activation is part of the product before it: another 1 to 4 % (not tried alone at 2048).
_GPU: dict[str, bool | int] = {"xla_gpu_enable_triton_gemm": False, "xla_gpu_enable_cublaslt": True}

# Kernels for matrix products are still tried out, but on whatever is in memory and without a look at what they give. A
# sweep of 36 runs at width 128 took 36.5 s in place of 39.4, once each; steps at width 512 were 0.1 % (one model) and
# 0.6 % (32 lanes) slower. Without trying them out at all, one model was 8 % slower.
_GPU_SOON: dict[str, bool | int] = {"xla_gpu_autotune_level": 1}

_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
)
"""What else a program depends on."""

_threads = ThreadPoolExecutor(thread_name_prefix="compile")


class Compiled:
    """A function like those of `jax.jit`, made when it is first used: before, the device is not known."""

    def __init__(self, function: Callable[..., Any], *, static: tuple[str, ...], donate: tuple[str, ...] = ()) -> None:
        self._make = functools.partial(jax.jit, function, static_argnames=static, donate_argnames=donate)
        self._begun: dict[Any, Future[Any]] = {}

    @functools.cached_property
    def jitted(self) -> Any:
        """The function as `jax.jit` gives it."""
        return self._make(compiler_options=_options(False) or None)

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Call it."""
        return self.jitted(*args, **static)

    def begin(self, *args: Any, soon: bool = False, **static: Any) -> Future[Any]:
        """Begin to compile, or go on where this was asked for before.

        Args:
            args: Data like that of the calls to come; shapes will do.
            soon: Whether the program is better ready soon than a bit faster.
            static: Static arguments, as keywords.

        Returns:
            What will be the compiled function of the data.
        """
        leaves, structure = jax.tree.flatten(args)
        settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
        key = structure, tuple(map(shaped_abstractify, leaves)), tuple(sorted(static.items())), settings, soon
        begun = self._begun.get(key)
        if begun is None or (begun.done() and begun.exception() is not None):  # memory may be there the second time
            lowered = self.jitted.lower(*args, **static)  # this is Python, which threads would not make faster
            self._begun[key] = _threads.submit(lowered.compile, _options(soon) or None)
        return self._begun[key]


@functools.cache
def wake() -> None:
    """Have the device get ready in the background, while programs are traced.

    JAX takes a device's memory when it first needs some, which takes 2 s on an H200. To compile for it waits, and keeps
    Python from going on meanwhile; so what options there are is asked before.
    """
    _options(True)
    _threads.submit(jax.device_put, 0)


@functools.cache
def _options(soon: bool) -> dict[str, bool | int]:
    """Give the options that suit the device, as far as this version of the compiler has them."""
    if jax.default_backend() != "gpu":
        return {}
    given, more = (_options(False), _GPU_SOON) if soon else ({}, _GPU)
    return given | {name: value for name, value in more.items() if has_option(name, value)}


def has_option(name: str, value: Any) -> bool:
    """Say whether the compiler knows an option: they come and go with its versions.

    >>> has_option("xla_no_such_thing", True)
    False
    """
    try:
        jax.jit(lambda x: x, compiler_options={name: value}).lower(0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
