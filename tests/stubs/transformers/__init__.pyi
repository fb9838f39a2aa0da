"""Its own types take pyright seconds to read, and say little."""

from typing import Any

def __getattr__(name: str) -> Any: ...
