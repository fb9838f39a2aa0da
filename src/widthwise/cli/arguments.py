"""How words on the command line become values of the theory."""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from types import NoneType
from typing import Any, TypeVar, get_args

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    UnsupportedTypeAnnotationError,
)

from widthwise.theory import exact

Value = TypeVar("Value")


def named(values: Mapping[str, Value]) -> PrimitiveConstructorSpec[Value]:
    """Accept the name of one of `values`, whatever its case, with hyphens for underscores if one likes."""

    def read(name: str) -> Value:
        try:
            return values[name.lower().replace("-", "_")]
        except KeyError:
            raise ValueError(f"{name!r} is not one of {', '.join(values)}") from None

    return read_by("{" + ",".join(values) + "}", read)


def numbers(metavar: str, *counts: int) -> PrimitiveConstructorSpec[tuple[Fraction, ...]]:
    """Accept exact numbers joined by commas, as many as one of `counts` says."""

    def read(text: str) -> tuple[Fraction, ...]:
        parts = tuple(exact(part.strip()) for part in text.split(","))
        if len(parts) not in counts:
            raise ValueError(f"{text!r} has {len(parts)} numbers: expected {metavar}")
        return parts

    return read_by(metavar, read)


def count(metavar: str, *, least: int = 0, most: int = 10**9) -> PrimitiveConstructorSpec[int]:
    """Accept a whole number within bounds, also as a power of ten: 2e9."""

    def read(text: str) -> int:
        digits, _, zeros = text.partition("e")
        zeros = zeros if "e" in text else "0"
        whole = digits.isdecimal() and zeros.isdecimal() and len(digits) < 20 and len(zeros) < 3
        value = int(digits) * 10 ** int(zeros) if whole else math.nan
        if not least <= value <= most:
            raise ValueError(f"{text!r} is not a whole number from {least} to {most}")
        return int(value)

    return read_by(metavar, read)


def positive(metavar: str) -> PrimitiveConstructorSpec[float]:
    """Accept a finite number above 0."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{text!r} is not a number above 0")
        return value

    return read_by(metavar, read)


def size(metavar: str, *, least: int = 1) -> PrimitiveConstructorSpec[float]:
    """Accept a number of bytes, also with a unit: 80G or 80GB (10⁹), 80GiB (2³⁰)."""

    def read(text: str) -> float:
        written = r"([0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,2})?)\s*(?:([kmgt])(i?)b?|b)?"
        found = re.fullmatch(written, text.strip(), re.IGNORECASE | re.ASCII)
        if found is None or not float(found[1]):
            raise ValueError(f"{text!r} is not a number of bytes, such as 80G or 80GiB")
        power = " kmgt".index((found[2] or " ").lower())
        value = float(found[1]) * (1024 if found[3] else 1000) ** power
        if value < least:
            raise ValueError(f"{text!r} is less than {least:,} bytes: is a unit missing, such as the G of 80G?")
        return value

    return read_by(metavar, read)


@contextmanager
def naming_options(arguments: Collection[str]) -> Iterator[None]:
    """Let messages about an argument name the option that was typed: --base-depth in place of base_depth."""
    try:
        yield
    except ValueError as error:
        name, _, rest = str(error).partition(" is ")
        if name not in arguments:
            raise
        raise ValueError(f"--{name.replace('_', '-')} is {rest}") from None


def unset(meaning: str) -> Any:
    """Describe in the help what it means to leave an option out."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {meaning})")


RULES = ConstructorRegistry()
"""How types become options, where tyro's own way is not ours."""


@RULES.primitive_rule
def _whole(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read an `int` also as a power of ten, 2e9, as tokens are usually counted."""
    if info.type is not int:
        return None

    def read(text: str) -> int:
        power = re.fullmatch(r"(.+)e([0-9]{1,2})", text)
        try:
            return int(power[1]) * 10 ** int(power[2]) if power else int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a whole number") from None

    return replace(read_by("INT", read), is_instance=lambda value: isinstance(value, int))


@RULES.primitive_rule
def _may_be_left_out(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read `int | None` as an `int` that may be left out: nobody has to know the word None."""
    kinds = [kind for kind in get_args(info.type) if kind is not NoneType]
    if NoneType not in get_args(info.type) or len(kinds) != 1:
        return None
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kinds[0], info.markers))
    if isinstance(spec, UnsupportedTypeAnnotationError):
        return None
    return replace(
        spec,
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: ["unset"] if value is None else spec.str_from_instance(value),
    )


@RULES.primitive_rule
def _may_be_empty(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Read `tuple[int, ...]` as any number of words; the help shows "none" for no words."""
    if info.type_origin is not tuple or get_args(info.type)[1:] != (...,):
        return None
    one = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(get_args(info.type)[0], info.markers))
    if isinstance(one, UnsupportedTypeAnnotationError):
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar=f"[{one.metavar} [{one.metavar} ...]]",
        choices=one.choices,
        instance_from_str=lambda words: tuple(one.instance_from_str([word]) for word in words),
        is_instance=lambda value: isinstance(value, tuple) and all(map(one.is_instance, value)),
        str_from_instance=lambda value: [word for each in value for word in one.str_from_instance(each)] or ["none"],
    )


def read_by(metavar: str, read: Callable[[str], Value]) -> PrimitiveConstructorSpec[Value]:
    """Accept a word that `read` accepts."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: value is not None,
        str_from_instance=lambda value: [getattr(value, "name", str(value))],
    )
