"""Checksums of the files of a checkpoint: Orbax does not notice a number that was changed in a record.

They are written once a checkpoint is complete. One that has none is from an older version, or of a process that was
killed just then; it is read as it is.
"""

import json
import zlib
from pathlib import Path

NAME = "checksums.json"


def write(folder: Path) -> None:
    """Write the checksums of all files in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and NAME not in path.name)
    found = {str(path.relative_to(folder)): _checksum(path) for path in files}
    partial = folder / f".{NAME}.partial"
    partial.write_text(json.dumps(found))
    partial.replace(folder / NAME)


def check(folder: Path) -> None:
    """Raise ValueError if a file has changed since its checksum was written, or OSError if it cannot be read."""
    if not (folder / NAME).exists():
        return
    expected = json.loads((folder / NAME).read_text())
    if not isinstance(expected, dict):
        raise ValueError(f"{NAME} has changed since it was written")
    for name, checksum in expected.items():
        if _checksum(folder / name) != checksum:
            raise ValueError(f"{name} has changed since it was written")


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while some := file.read(1 << 20):
            checksum = zlib.crc32(some, checksum)
    return checksum
