"""Made-up requests and outcomes, as small as they can be."""

from typing import Any

from widthwise.sweep.records import Asked, Outcome


def asked(number: int, **spec: Any) -> Asked:
    """Ask for the run of this number, under a specification of its own unless given."""
    return Asked(spec=spec or {"seed": number}, run=f"run-{number:05}", identity={"number": number})


def ids(count: int) -> list[str]:
    return [asked(number).run for number in range(count)]


def outcome(number: int, **changes: Any) -> Outcome:
    curves = {"train_loss": (list(range(50)), [number + step / 7 for step in range(50)])}
    values = {"status": "finished", "results": {"eval_loss": number / 3}, "curves": curves} | changes
    return Outcome(run=asked(number).run, **values)
