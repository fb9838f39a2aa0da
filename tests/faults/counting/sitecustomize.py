"""Notes every chunk of steps that a process begins, in the file that WIDTHWISE_STEPS names: how much is computed twice?

Python imports this module when it starts, in commands and in all of their workers, if its folder is on PYTHONPATH.
TensorBoard's writer would import PyTorch if it is installed, which takes longer than all the rest of a start.
"""

import functools
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULE = "widthwise.train.lanes"


class Finder(MetaPathFinder):
    """Finds one module where Python does, and wraps what takes steps once it was imported; does not find PyTorch."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname == "torch":
            raise ModuleNotFoundError("is of no use here", name=fullname)
        spec = PathFinder.find_spec(fullname, path, target) if fullname == MODULE else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_wrap(module: ModuleType) -> None:
            execute(module)
            module.Lanes.chunk = counted(module.Lanes.chunk)

        spec.loader.exec_module = execute_and_wrap
        return spec


def counted(chunk: Any) -> Any:
    @functools.wraps(chunk)
    def begin(lanes: Any, states: Any, start: int, count: int, **more: Any) -> Any:
        with open(os.environ["WIDTHWISE_STEPS"], "ab", buffering=0) as file:
            file.write(f"{os.getpid()} {start} {count * len(lanes.lanes)}\n".encode())
        return chunk(lanes, states, start, count, **more)

    return begin


if "WIDTHWISE_STEPS" in os.environ:
    sys.meta_path.insert(0, Finder())
