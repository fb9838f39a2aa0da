"""Runs that settings have in common, because their rules differ in nothing but the learning rate.

A rule for batch size or tokens that only multiplies the learning rate says which rate to expect, not how to train. So
every run under one such rule is a run under another, with another base rate, and one of them is enough to know all.
"""

import dataclasses
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from widthwise.study.records import Row
from widthwise.study.setting import Setting
from widthwise.theory import read_batch_rule, read_token_rule
from widthwise.theory.axes import CONSTANT
from widthwise.train import Spec

_OPTIONS = frozenset(option.name for option in dataclasses.fields(Spec))


def to_train(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings that have to be trained to know all of these: the first of those that share their runs."""
    found: dict[Hashable, Setting] = {}
    for setting in settings:
        found.setdefault(_trained_as(setting), setting)
    return list(found.values())


def rows_of(setting: Setting, rows: Iterable[Row]) -> list[Row]:
    """Return the rows of a setting, and those that it would have with other rates, as rows of its own."""
    found = ((row, _request(setting, row.spec)) for row in rows)
    return [replace(row, spec=spec) for row, spec in found if spec is not None]


def _trained_as(setting: Setting) -> Hashable:
    """Return what settings that share their runs have in common."""
    if setting.weight_decay:  # what it removes changes with the rate
        return setting
    rules = read_batch_rule(setting.batch_rule), read_token_rule(setting.token_rule)
    changed = tuple((rule.epsilon, rule.one_minus_b2) for rule in rules)
    return replace(setting, batch_rule=CONSTANT.name, token_rule=CONSTANT.name), changed


def _request(setting: Setting, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the request of a setting for the run of another request; None if it has no such run."""
    own = Setting.of(request)
    if own == setting:
        return dict(request)
    if _trained_as(own) != _trained_as(setting):
        return None
    before = Spec.from_json({name: value for name, value in request.items() if name in _OPTIONS})
    after = replace(before, batch_rule=setting.batch_rule, token_rule=setting.token_rule)
    rate = before.learning_rate * _rate_factor(before) / _rate_factor(after)
    others = {name: value for name, value in request.items() if name not in _OPTIONS}
    return {**replace(after, learning_rate=rate).to_json(), **others}


def _rate_factor(spec: Spec) -> float:
    batch, tokens = spec.factors
    return batch.learning_rate * tokens.learning_rate
