"""From specifications to runs, on data that is opened once."""

import functools
from dataclasses import replace
from typing import Any

from widthwise.train import Inputs, Run, Spec, load_inputs, resolve

_DATA = ("data", "paths", "tokenizer", "vocabulary", "context", "batch", "data_seed", "eval_batches")


def data_of(spec: Spec) -> Spec:
    """Return what a specification says about its data: runs for which it is equal read the same batches."""
    return Spec(**{name: getattr(spec, name) for name in _DATA})


def inputs_of(spec: Spec) -> Inputs:
    """Return the data of a run, opened once for all runs of this process that share it."""
    return _inputs(data_of(spec))


@functools.lru_cache(maxsize=2)
def _inputs(spec: Spec) -> Inputs:
    return load_inputs(spec)


class SweepData:
    """The data that all runs of a sweep share."""

    def __init__(self, spec: Spec) -> None:
        inputs = inputs_of(spec)
        self.vocabulary = inputs.batches.vocabulary
        self._fingerprint = inputs.fingerprint
        self._known: dict[tuple[Spec, bool], Run] = {}

    def run(self, spec: Spec, *, probe: bool = False, **names: Any) -> Run:
        """Work a specification out.

        Args:
            spec: The specification.
            probe: Whether to measure alignment during training. Such a run is another run, so that one that was
                trained without measuring does not stand in for it.
            names: What a study keeps with the request beside the specification.
        """
        if (spec, probe) not in self._known:
            fingerprint = self._fingerprint
            self._known[spec, probe] = resolve(spec, vocabulary=self.vocabulary, data=fingerprint, probe=probe)
        return replace(self._known[spec, probe], names=names)
