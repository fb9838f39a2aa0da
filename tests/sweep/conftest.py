"""Compilations that several processes of a test session share."""

from collections.abc import Iterator

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

CACHE = {
    "jax_compilation_cache_dir": "",
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@pytest.fixture(scope="session")
def compilations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let processes that a test starts find what was compiled before: most of what tiny runs take is compilation."""
    before = {name: getattr(jax.config, name) for name in CACHE}
    wanted = CACHE | {"jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compilations"))}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in wanted.items():
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
