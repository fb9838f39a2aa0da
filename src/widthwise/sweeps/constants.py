"""Constants by name: all 1, or tuned in a study and kept in its notes."""

from dataclasses import asdict
from typing import Any

from widthwise.parameterize import Constants
from widthwise.study.setting import DEFAULT
from widthwise.study.store import Study


def tuned_for(optimizer: str) -> tuple[str, ...]:
    """Return the optimizers whose constants an optimizer can use, its own first.

    Adam-atan2 is Adam without epsilon, so it can use Adam's, as in the paper.
    """
    return ("adam_atan2", "adam") if optimizer == "adam_atan2" else (optimizer,)


def look_up(study: Study | None, name: str, optimizer: str, parameterization: str) -> Constants:
    """Return the constants of a name; tuned ones are kept for each optimizer and parameterization."""
    if name == DEFAULT:
        return Constants()
    for source in tuned_for(optimizer):
        note = None if study is None else study.get(_note(name, source, parameterization))
        if note is not None:
            return Constants(**note["constants"])
    raise ValueError(
        f"there are no constants {name!r} for {parameterization} with {optimizer}: "
        f"expected {DEFAULT}, or a name that widthwise tune wrote into the study"
    )


def keep(study: Study, name: str, optimizer: str, parameterization: str, constants: Constants, about: Any) -> None:
    """Write tuned constants into a study, with the details of the search."""
    if name == DEFAULT:
        raise ValueError(f"the name {name!r} is reserved: expected another name for the constants")
    study.put(_note(name, optimizer, parameterization), {"constants": asdict(constants), "about": about})


def _note(name: str, optimizer: str, parameterization: str) -> str:
    return f"constants/{name}/{optimizer}/{parameterization}"
