"""Tests of what exists on a GPU alone: `make test-gpu` collects them, `make test` does not."""

import os

collect_ignore_glob = [] if os.environ.get("JAX_PLATFORMS") == "cuda" else ["test_*.py"]
