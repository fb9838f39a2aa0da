"""What is not tested where PyTorch, or what its tests compare it with, is missing; in CI, all of it is tested."""

import os
from importlib.util import find_spec

import pytest

MISSING = [name for name in ("torch", "transformers", "accelerate", "lightning", "mup") if find_spec(name) is None]
collect_ignore_glob: list[str] = []
if MISSING and not os.environ.get("CI"):
    collect_ignore_glob += ["src/widthwise/torch/*.py", "tests/torch/*.py", "docs/pytorch.md"]
    collect_ignore_glob += [f"docs/tutorials/{name}.md" for name in ("pytorch", "mup", "large-model")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report what was skipped."""
    if collect_ignore_glob:
        terminalreporter.write_line(f"PyTorch is not tested: {', '.join(MISSING)} not installed")
