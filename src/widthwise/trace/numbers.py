"""Numbers in a model that change with its width, found by comparing its traces at two widths.

√d on the embeddings, or 1/√d in attention where the dimension of heads grows, are multipliers that the model applies
by itself. A plan cannot see from shapes that they are there, and they undo what it prescribes. Dividing a sum by the
number of its terms, as norms do, is not one of them.
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np
from jax.extend.core import Literal as Constant

from widthwise.scaling import ChangedNumber
from widthwise.trace.walk import body_of

_NOT_OF_THE_MODEL = ("/jax/", "/jaxlib/", "/flax/", "/equinox/", "/optax/", "/haiku/", "/widthwise/planning/")
_CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "checkpoint",
    "remat",
    "remat2",
    "custom_jvp_call",
    "custom_vjp_call",
)
_WIDTH_DOES_NOT_MATTER = {"dynamic_slice", "dynamic_update_slice", "gather", "scatter", "clamp", "lt", "ge", "rem"}

_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "log": np.log,
    "exp": np.exp,
    "neg": np.negative,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "convert_element_type": lambda x: x,
    "broadcast_in_dim": lambda x, *_: x,
}
"""What makes numbers of numbers, such as √d, which JAX traces as any other operation."""

Known: TypeAlias = dict[Any, Any]
"""The results of operations on numbers alone."""


def changed_numbers(base: Any, here: Any) -> tuple[ChangedNumber, ...]:
    """Return the numbers that differ between the traces of a model at two widths, each once.

    Only operations on parameters and examples count; how the model draws its initial parameters does not.
    """
    return tuple(dict.fromkeys(_changed(base, here, [True] * len(here.invars), ({}, {}))[0]))


def _changed(
    base: Any, here: Any, depends: list[bool], known: tuple[Known, Known]
) -> tuple[list[ChangedNumber], list[bool]]:
    """Return the numbers that differ, and which results depend on arguments that matter."""
    if [o.primitive.name for o in base.eqns] != [o.primitive.name for o in here.eqns]:
        return [], [True] * len(here.outvars)  # the model does different things at the two widths
    found: list[ChangedNumber] = []
    matters = dict(zip(here.invars, depends, strict=True))
    made_by = {var: operation for operation in here.eqns for var in operation.outvars}
    for before, after in zip(base.eqns, here.eqns, strict=True):
        given = [not isinstance(atom, Constant) and matters.get(atom, False) for atom in after.invars]
        results = [any(given)] * len(after.outvars)
        if any(given):
            entered = False
            for old, new in zip(_inside(before), _inside(after), strict=True):
                entered = len(new.invars) == len(given)
                inside = given if entered else [True] * len(new.invars)
                numbers = (_entering(before, old, known[0]), _entering(after, new, known[1])) if entered else ({}, {})
                changed, inner = _changed(old, new, inside, numbers)
                found += changed
                results = inner if after.primitive.name in _CALLS and len(inner) == len(results) else results
            if not entered:
                found += _numbers(before, after, made_by, known)
        else:
            for operation, numbers in zip((before, after), known, strict=True):
                numbers.update(_evaluated(operation, numbers))
        matters.update(zip(after.outvars, results, strict=True))
    return found, [not isinstance(atom, Constant) and matters.get(atom, False) for atom in here.outvars]


def _numbers(before: Any, after: Any, made_by: dict[Any, Any], known: tuple[Known, Known]) -> Iterator[ChangedNumber]:
    name = after.primitive.name
    if name in _WIDTH_DOES_NOT_MATTER:
        return
    for atoms in zip(before.invars, after.invars, strict=True):
        x, y = (_number(atom, numbers) for atom, numbers in zip(atoms, known, strict=True))
        if x is None or y is None or not _differ(x, y):
            continue
        if name not in ("div", "mul") or not _is_count(float(y), after, made_by):
            yield ChangedNumber(operation=name, base=float(x), here=float(y), where=_where(after))


def _number(atom: Any, known: Known) -> Any | None:
    """Return the value of an operand that is a number."""
    value = atom.val if isinstance(atom, Constant) else known.get(atom)
    return None if value is None or np.ndim(value) else value


def _entering(operation: Any, body: Any, known: Known) -> Known:
    """Return the arguments of an operation's body that are numbers."""
    values = [_number(atom, known) for atom in operation.invars]
    return {var: value for var, value in zip(body.invars, values, strict=True) if value is not None}


def _evaluated(operation: Any, known: Known) -> Known:
    """Return the results of an operation that are made of numbers alone."""
    body = body_of(operation)
    if body is not None:
        inside = _entering(operation, body, known)
        for each in body.eqns:
            inside.update(_evaluated(each, inside))
        pairs = zip(operation.outvars, body.outvars, strict=True)
        return {var: value for var, atom in pairs if (value := _number(atom, inside)) is not None}
    values = [_number(atom, known) for atom in operation.invars]
    function = _ARITHMETIC.get(operation.primitive.name)
    if function is None or any(value is None for value in values):
        return {}
    return {operation.outvars[0]: function(*values)}


def _inside(operation: Any) -> list[Any]:
    params = operation.params
    match operation.primitive.name:
        case "scan":
            return [params["jaxpr"].jaxpr]
        case "while":
            return [params["body_jaxpr"].jaxpr]
        case "cond":
            return [branch.jaxpr for branch in params["branches"]]
    body = body_of(operation)
    return [] if body is None else [body]


def _differ(x: Any, y: Any) -> bool:
    return np.issubdtype(np.asarray(y).dtype, np.floating) and not np.array_equal(x, y, equal_nan=True)


def _is_count(value: float, operation: Any, made_by: dict[Any, Any]) -> bool:
    """Return whether an operation divides a sum by the number of its terms."""
    for atom in operation.invars:
        source = None if isinstance(atom, Constant) else made_by.get(atom)
        while source is not None and source.primitive.name in ("broadcast_in_dim", "reshape", "convert_element_type"):
            source = made_by.get(source.invars[0])
        if source is not None and source.primitive.name == "reduce_sum":
            terms = prod(source.invars[0].aval.shape[axis] for axis in source.params["axes"])
            if np.isclose(value, terms) or np.isclose(value, 1 / terms):
                return True
    return False


def _where(operation: Any) -> str:
    trace = getattr(operation.source_info, "traceback", None)
    for frame in getattr(trace, "frames", ()):
        if not any(part in frame.file_name for part in _NOT_OF_THE_MODEL):
            return f"{frame.file_name}:{frame.line_num}"
    return ""
