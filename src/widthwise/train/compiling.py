"""Compilation of training programs, with options for the device, and ahead of time if possible.

A run needs several programs. Compiled on first call, they would be compiled one after another, while most cores and the
device wait. The shapes are known beforehand, so programs can be compiled in parallel.
"""

import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
from jax.api_util import shaped_abstractify

# On an H200, compared with the compiler's defaults: with cuBLAS for all matrix products, setting up a program took 9 to
# 12 s instead of 13 to 20 s, and steps were 0.6 to 1.4 % faster (widths 128 and 512 in lanes, 512 and 2048 alone).
# cuBLASLt fuses the activation into the preceding product: another 1 to 4 % (not tried alone at 2048).
FOR_GPUS: dict[str, bool | int] = {"xla_gpu_enable_triton_gemm": False, "xla_gpu_enable_cublaslt": True}

# Level 1 still times kernels for matrix products, but on uninitialized memory and without checking their results. A
# sweep of 36 runs at width 128 took 36.5 s instead of 39.4 s, measured once each; steps at width 512 were 0.1 % (one
# model) and 0.6 % (32 lanes) slower. Without any autotuning, one model was 8 % slower.
_FOR_GPUS_SOON: dict[str, bool | int] = {"xla_gpu_autotune_level": 1}

_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
)
"""JAX settings that a compiled program depends on."""

_threads = ThreadPoolExecutor(thread_name_prefix="compile")
_asking = threading.Lock()


class Compiled:
    """A jitted function, created on first use because the device is not known before."""

    def __init__(self, function: Callable[..., Any], *, static: tuple[str, ...], donate: tuple[str, ...] = ()) -> None:
        self._make = functools.partial(jax.jit, function, static_argnames=static, donate_argnames=donate)
        self._begun: dict[Any, Future[Any]] = {}

    @functools.cached_property
    def _plain(self) -> Any:
        return self._make()  # options come when it is compiled: they are not known before the device is ready

    @functools.cached_property
    def jitted(self) -> Any:
        """The function returned by `jax.jit`."""
        return self._make(compiler_options=_options(False) or None)

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Call the function."""
        return self.jitted(*args, **static)

    def lower(self, *args: Any, **static: Any) -> Any:
        """Trace the function for arguments of these shapes, which says on which devices they are."""
        return self._plain.lower(*args, **static)

    def begin(self, *args: Any, soon: bool = False, **static: Any) -> Future[Any]:
        """Start compiling in the background, unless that was started before.

        Args:
            args: Arguments like those of later calls; shapes are enough.
            soon: Whether short compilation matters more than the last percent of speed.
            static: Static arguments, as keywords.

        Returns:
            A future of the compiled function.
        """
        leaves, structure = jax.tree.flatten(args)
        settings = tuple(getattr(jax.config, name) for name in _SETTINGS)
        key = structure, tuple(map(shaped_abstractify, leaves)), tuple(sorted(static.items())), settings, soon
        begun = self._begun.get(key)
        if begun is None or (begun.done() and begun.exception() is not None):  # there may be memory the second time
            lowered = self.lower(*args, **static)  # pure Python, which threads do not speed up
            self._begun[key] = _threads.submit(_compile, lowered, soon)
        return self._begun[key]


def _compile(lowered: Any, soon: bool) -> Any:
    return lowered.compile(_options(soon) or None)


@functools.cache
def wake() -> None:
    """Initialize the device in the background, while data is opened and programs are traced.

    JAX allocates the memory of a device when it first needs some, which takes 2 s on an H200. Compiling waits for that
    and blocks Python meanwhile, so the compiler options are queried first.
    """
    _threads.submit(lambda: (_options(True), jax.device_put(0)))


def _options(soon: bool) -> dict[str, bool | int]:
    """Return the compiler options for the device that this version of the compiler supports."""
    if jax.default_backend() != "gpu":
        return {}
    with _asking:
        known = _supported()
    return {name: value for name, value in known.items() if soon or name in FOR_GPUS}


@functools.cache
def _supported() -> dict[str, bool | int]:
    """Return those of all options that the compiler supports: all at once if possible, since asking compiles."""
    options = FOR_GPUS | _FOR_GPUS_SOON
    if supports(options):
        return options
    return {name: value for name, value in options.items() if supports({name: value})}


def supports(options: Mapping[str, bool | int]) -> bool:
    """Return whether this version of the compiler supports all of some options.

    >>> supports({"xla_no_such_thing": True})
    False
    """
    try:
        jax.jit(lambda x: x, compiler_options=dict(options)).lower(0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
