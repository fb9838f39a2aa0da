"""The store with 50,000 runs and three curves of 100 points each: writing, listing, fitting, reading, size.

python benchmarks/store.py [RUNS]
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from widthwise.study import Outcome, Request, Study, to_csv, to_json_lines
from widthwise.study.fits import fit_rows

BATCH = 500
POINTS = 100
LEAVES = 65


def asked(number: int) -> Request:
    """Make up a request as large as a real one: a transformer of eight blocks has this many parameters."""
    rate = 1e-4 * 1.0001**number
    spec = {
        "width": 128 << number % 5,
        "parameterization": ("standard", "ntk", "mup", "mean_field")[number % 4],
        "optimizer": "adam",
        "alignment": "full",
        "learning_rate": rate,
        "seed": number,
        **{f"field_{i}": value for i, value in enumerate([None, 0.0, 128, "stdlib", 1e-9, False, []] * 3)},
    }
    leaves = {f"blocks/{i}/attention/query/kernel": [0.0883883476484, 1.0, rate, 1e-9, None] for i in range(LEAVES)}
    return Request(
        request=spec, id=f"{number * 2654435761 % 2**64:016x}", identity={"parameters": leaves, "seed": number}
    )


def outcome(run: str, rng: np.random.Generator) -> Outcome:
    steps = np.arange(POINTS) * 10
    loss = 3 + 5 * np.exp(-steps / 200) + rng.normal(0, 0.02, POINTS)
    curves = {
        "train_loss": (steps, loss.astype(np.float32)),
        "eval_loss": (steps, (loss + 0.1).astype(np.float32)),
        "alignment.hidden": (steps, (0.5 + rng.normal(0, 0.05, POINTS)).astype(np.float32)),
    }
    results = {"eval_loss": float(loss[-1]), "train_loss": float(loss[-1]), "steps": 1000, "tokens_per_second": 1e5}
    provenance = {"widthwise": "0.0", "jax": "0.10", "device": "cpu", "data": {"hash": "f" * 64}, "seconds": 12.5}
    return Outcome(run=run, status="finished", results=results, curves=curves, provenance=provenance)


def timed(what: str, function: Callable[[], object]) -> None:
    start, busy = time.perf_counter(), time.process_time()
    function()
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    print(f"{what:32}{seconds:8.2f} s, {busy:6.2f} s of them on the processor", flush=True)


def main(count: int) -> None:
    requests = [asked(number) for number in range(count)]
    ids = [request.id for request in requests]
    rng = np.random.default_rng(0)

    def batches() -> Iterator[list[str]]:
        return (ids[start : start + BATCH] for start in range(0, count, BATCH))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Study.open(folder) as study:

            def claim() -> None:
                for batch in batches():
                    study.claim(batch, seconds=60)

            made = [[outcome(run, rng) for run in batch] for batch in batches()]
            timed("ask", lambda: study.ask(requests, label="benchmark"))
            timed("ask again", lambda: study.ask(requests, label="benchmark"))
            timed(f"claim, {BATCH} at a time", claim)
            timed(f"record, {BATCH} at a time", lambda: [study.record(batch) for batch in made])
        with Study.open(folder, create=False) as study:
            timed("open", lambda: Study.open(folder, create=False).close())
            timed("list all rows", study.runs)
            timed("list all rows of a label", lambda: study.runs(label="benchmark"))
            timed("count", study.counts)
            timed("list and fit all groups", lambda: fit_rows(study.runs()))
            timed("read all curves", lambda: study.curves(ids))
            timed("write CSV", lambda: to_csv(study, folder / "runs.csv"))
            timed("write JSON lines with curves", lambda: to_json_lines(study, folder / "runs.jsonl", curves=True))
        print(f"{count} runs: {(folder / 'study.sqlite').stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
