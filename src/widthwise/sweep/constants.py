"""Constants by name: all 1, or what was tuned in a study and is kept in its notes."""

from dataclasses import asdict
from typing import Any

from widthwise.parameterize import Constants
from widthwise.sweep.store import Study

DEFAULT = "default"
"""The constants that are all 1."""


def look_up(study: Study | None, name: str, optimizer: str, parameterization: str) -> Constants:
    """Give the constants of a name; tuned ones are kept for each optimizer and parameterization."""
    if name == DEFAULT:
        return Constants()
    note = None if study is None else study.get(_note(name, optimizer, parameterization))
    if note is None:
        raise ValueError(
            f"there are no constants {name!r} for {parameterization} with {optimizer}: "
            f"expected {DEFAULT}, or a name that widthwise tune has written into the study"
        )
    return Constants(**note["constants"])


def keep(study: Study, name: str, optimizer: str, parameterization: str, constants: Constants, about: Any) -> None:
    """Write tuned constants into a study, with what is to be known about them."""
    if name == DEFAULT:
        raise ValueError(f"constants cannot be called {name!r}: that name has a meaning")
    study.put(_note(name, optimizer, parameterization), {"constants": asdict(constants), "about": about})


def _note(name: str, optimizer: str, parameterization: str) -> str:
    return f"constants/{name}/{optimizer}/{parameterization}"
