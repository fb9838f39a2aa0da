"""Set up before JAX is imported, in the environment, so that the processes that tests start are set up alike.

There are eight simulated devices, so that sharding is tested everywhere. Most of what tests take is compilation, so
programs are hardly optimized, and each is compiled once: all processes of this run and of later ones share a folder.
Tokenized text and the speed of such programs are kept there too, apart from those of the user. In JAX 0.10, the older
of XLA's two ways to write fused loops compiles in half the time; where its flag is unknown, XLA would not start.
"""

import gc
import os
from importlib.metadata import version
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
if version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # both workers use a core each, and threads would wait by spinning
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache/compilations"))
os.environ.setdefault("WIDTHWISE_CACHE", str(Path(__file__).parents[1] / ".pytest_cache/widthwise"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import pytest
from hypothesis import settings

# Runs are repeatable: a failure seen once is seen again. HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_finish() -> None:
    """Exclude what was imported from garbage collection, and collect less often.

    Tracing makes and drops many small objects. By default that sets off a search of all there is every few seconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 50)


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as to a pipe, whatever terminal the tests run in."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
