"""What is not tested where an optional dependency is missing."""

from importlib.util import find_spec

collect_ignore_glob: list[str] = []
if find_spec("torch") is None:
    collect_ignore_glob += ["src/widthwise/torch/*.py", "tests/torch/*.py", "docs/pytorch.md"]
elif find_spec("transformers") is None:
    collect_ignore_glob += ["tests/torch/cases.py"]
