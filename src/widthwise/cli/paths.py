"""Paths to write to, checked before anything is computed."""

from pathlib import Path


def check_folder(path: Path) -> None:
    """Raise ValueError if a folder cannot be made at a path, because there is a file in its place or above it."""
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(f"{str(part)!r} is a file: expected a folder to write to")


def check_file(path: Path) -> None:
    """Raise ValueError if a file cannot be written at a path, because there is a folder, or a file above it."""
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder: expected a file to write")
    check_folder(path.parent)
