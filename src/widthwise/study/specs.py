"""What a request may hold: fields that are known are of their kind, and all others are plain values.

A study keeps whatever it is given. What comes from a file of somebody else is checked here, when it is read, so that
fits and reports can rely on it. Fields may be missing: what needs one says so.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from widthwise.study.axes import AXES, OWN

_Check: TypeAlias = tuple[str, Callable[[Any], bool]]


def _is_whole(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value == int(value)


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, str)) or _is_number(value)


_SIZE: _Check = ("a whole number, 1 or more", lambda value: _is_whole(value) and value >= 1)
_COUNT: _Check = ("a whole number, 0 or more", lambda value: _is_whole(value) and value >= 0)
_RATE: _Check = ("a number above 0", lambda value: _is_number(value) and 0 < value < math.inf)
_NUMBER: _Check = ("a number", _is_number)
_TEXT: _Check = ("text", lambda value: isinstance(value, str))
_FLAG: _Check = ("true or false", lambda value: isinstance(value, bool))
_PLAIN: _Check = (
    "a plain value, or a list of them",
    lambda value: _is_plain(value) or (isinstance(value, list) and all(map(_is_plain, value))),
)


def _or_nothing(check: _Check) -> _Check:
    expected, holds = check
    return f"{expected}, or null", lambda value: value is None or holds(value)


SPEC: Mapping[str, _Check] = {
    **dict.fromkeys(("width", "base_width", "blocks", "head_dim", "context", "batch", "steps", "eval_batches"), _SIZE),
    **dict.fromkeys(("depth", "tokens", "together"), _SIZE),
    **dict.fromkeys(("warmup", "seed", "data_seed"), _COUNT),
    **dict.fromkeys(("parameterization", "optimizer", "alignment", "constants", "horizon", "dtype"), _TEXT),
    **dict.fromkeys(("decay_rule", "depth_rule", "batch_rule", "token_rule", "data", "tokenizer"), _TEXT),
    **dict.fromkeys(("learning_rate", "embedding_constant", "hidden_constant", "readout_constant"), _RATE),
    **dict.fromkeys(("epsilon_per_parameter", "probe"), _FLAG),
    "weight_decay": _NUMBER,
    "epsilon": _or_nothing(_NUMBER),
    "rates": _or_nothing(_TEXT),
    "axis": (" or ".join(AXES), lambda value: isinstance(value, str) and value in AXES),
    OWN: ("an object of plain values", lambda value: isinstance(value, dict) and all(map(_is_plain, value.values()))),
}
RESULTS: Mapping[str, _Check] = {
    "eval_loss": _NUMBER,
    "parameters": _or_nothing(_SIZE),
}


ROLES = ("embedding", "hidden", "readout")
_CONSTANTS: Mapping[str, _Check] = {
    "constants": (
        f"numbers above 0 for {', '.join(ROLES)}",
        lambda value: isinstance(value, dict) and value.keys() == {*ROLES} and all(map(_RATE[1], value.values())),
    ),
    "about": _or_nothing(("an object", lambda value: isinstance(value, dict))),
}
_ABOUT: Mapping[str, _Check] = {
    "eval_loss": _NUMBER,
    "at_edge": ("a list of texts", lambda value: isinstance(value, list) and all(isinstance(x, str) for x in value)),
}
_EXPERIMENT: Mapping[str, _Check] = {
    "began": _or_nothing(_TEXT),
    "ended": _or_nothing(_TEXT),
    "missing": _ABOUT["at_edge"],
}


def check_note(name: str, value: Any) -> None:
    """Raise ValueError if a note that means something is something else."""
    kind, _, rest = name.partition("/")
    known = {"constants": _CONSTANTS, "experiment": _EXPERIMENT}.get(kind)
    if known is None:
        return
    parts = rest.count("/") + 1
    if (parts < 3) if kind == "constants" else (parts != 2):  # the name of constants may have slashes
        raise ValueError(f"the note {name!r} is none of {kind}: expected more or fewer slashes")
    if not isinstance(value, dict) or not known.keys() <= {"about", *value}:
        raise ValueError(f"the note {name!r} is something else: expected an object with {', '.join(known)}")
    check_plain(f"the note {name!r}", {field: value[field] for field in known if field in value}, known)
    about = value.get("about") or {}
    check_plain(f"the note {name!r}", {field: about[field] for field in _ABOUT if field in about}, _ABOUT)


def check_plain(what: str, value: Mapping[str, Any], known: Mapping[str, _Check]) -> None:
    """Raise ValueError, naming the field, if one of a specification or of results is something else."""
    for name, field in value.items():
        expected, holds = known.get(name, _PLAIN)
        if not holds(field):
            text = repr(field)
            brief = text if len(text) <= 40 else f"{text[:37]}..."
            raise ValueError(f"{name} of {what} is {brief}: expected {expected}")
