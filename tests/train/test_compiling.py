"""What is compiled ahead is what would have been compiled later, once."""

import functools
from concurrent.futures import Future, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from widthwise.train import compiling
from widthwise.train.compiling import Compiled, supports


@functools.partial(Compiled, static=("power",), donate=("x",))
def scaled(x: jax.Array, factors: dict[str, jax.Array], *, power: int) -> jax.Array:
    return x**power * factors["one"]


def test_ahead_of_time_from_shapes_it_computes_the_same():
    x, factors = np.arange(4.0, dtype=np.float32), {"one": np.float32(3)}
    ready = scaled.begin(jax.ShapeDtypeStruct((4,), jnp.float32), factors, power=2)
    np.testing.assert_array_equal(ready.result()(jnp.asarray(x), factors), scaled(jnp.asarray(x), factors, power=2))


def test_what_was_begun_is_not_begun_again(monkeypatch):
    threads = ThreadPoolExecutor(1)
    begun = []
    monkeypatch.setattr(threads, "submit", lambda *work: begun.append(work) or Future())
    monkeypatch.setattr(compiling, "_threads", threads)
    doubled = Compiled(lambda x, *, times: x * times, static=("times",))
    for length, times in ((3, 2), (3, 2), (4, 2), (3, 5)):
        doubled.begin(jax.ShapeDtypeStruct((length,), jnp.float32), times=times)
    assert len(begun) == 3
    with jax.default_matmul_precision("highest"):
        doubled.begin(jax.ShapeDtypeStruct((3,), jnp.float32), times=2)
    assert len(begun) == 4


def test_what_failed_is_begun_again(monkeypatch):
    def fail(_):
        raise MemoryError("no room")

    doubled = Compiled(lambda x: x * 2, static=())
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "_threads", failing := ThreadPoolExecutor(1))
        patch.setattr(failing, "submit", lambda _, *work: ThreadPoolExecutor.submit(failing, fail, work))
        with pytest.raises(MemoryError, match="no room"):
            doubled.begin(jnp.ones(3)).result()
    np.testing.assert_array_equal(doubled.begin(jnp.ones(3)).result()(jnp.ones(3)), 2 * np.ones(3))


def test_a_program_is_of_the_device_that_it_was_begun_on():
    doubled = Compiled(lambda x: x * 2, static=())
    for device in jax.devices()[:2]:
        with jax.default_device(device):
            assert doubled.begin(jnp.ones(3)).result()(jnp.ones(3)).device == device


def test_data_that_was_given_away_is_used_up():
    x, factors = jnp.ones(4), {"one": jnp.ones(())}
    scaled.begin(x, factors, power=1).result()(x, factors)
    with pytest.raises(RuntimeError, match="deleted"):
        x.block_until_ready()


def test_options_are_only_those_that_the_compiler_has(monkeypatch):
    monkeypatch.setattr(compiling, "FOR_GPUS", {"xla_gpu_enable_triton_gemm": False, "xla_gpu_was_taken_out": True})
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(compiling, "_supported", functools.cache(compiling._supported.__wrapped__))
    assert compiling._options(False) == {"xla_gpu_enable_triton_gemm": False}
    assert compiling._options(True) == {"xla_gpu_enable_triton_gemm": False, **compiling._FOR_GPUS_SOON}
    assert supports({"xla_gpu_enable_triton_gemm": False})


def test_options_that_the_compiler_has_are_asked_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(compiling, "_supported", functools.cache(compiling._supported.__wrapped__))
    monkeypatch.setattr(compiling, "supports", lambda options: asked.append(options) or True)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(compiling._options, [True, False] * 4))
    assert found == [compiling.FOR_GPUS | compiling._FOR_GPUS_SOON, compiling.FOR_GPUS] * 4
    assert len(asked) == 1


def test_a_program_that_is_better_ready_soon_is_compiled_so(monkeypatch):
    given = []
    monkeypatch.setattr(compiling, "_options", lambda soon: {"level": 1} if soon else {})
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda self, options: given.append(options))
    doubled = Compiled(lambda x: x * 2, static=())
    for soon in (True, False):
        doubled.begin(jnp.ones(3), soon=soon).result()
    assert given == [{"level": 1}, None]
