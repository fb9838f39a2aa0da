"""Made-up requests and outcomes, as small as they can be."""

from typing import Any

from widthwise.study.records import Outcome, Request


def asked(number: int, **spec: Any) -> Request:
    """Ask for the run of this number, under a specification of its own unless given."""
    return Request(request=spec or {"seed": number}, id=f"run-{number:05}", identity={"number": number})


def ids(count: int) -> list[str]:
    return [asked(number).id for number in range(count)]


def outcome(number: int, **changes: Any) -> Outcome:
    curves = {"train_loss": (list(range(50)), [number + step / 7 for step in range(50)])}
    values = {"status": "finished", "results": {"eval_loss": number / 3}, "curves": curves} | changes
    return Outcome(run=asked(number).id, **values)
