"""Training data reaches the devices that need it, and no others."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.train.runs import MODEL, lane, program
from widthwise.data import Evaluation, Resident, Streamed
from widthwise.data.order import Order
from widthwise.train import Lanes, make_mesh, train
from widthwise.train.feed import Feed
from widthwise.train.sharding import Placement

CORPUS = np.random.default_rng(0).integers(0, MODEL.vocabulary, 16 * 64 + 1).astype(np.uint16)
ORDER = Order(sequences=64, batch=8, seed=3)


def streamed() -> Streamed:
    return Streamed(CORPUS, ORDER, MODEL.context, MODEL.vocabulary)


def losses(batches: Resident | Streamed, mesh: jax.sharding.Mesh | None) -> list[float]:
    evaluation = Evaluation(CORPUS[: 2 * 8 * 17].reshape(2, 8, 17), np.ones((2, 8, 16), np.float32))
    (result,) = train(Lanes(program(), [lane()], batches, side_by_side=False, mesh=mesh), evaluation)
    return [*result.train_loss, result.eval_loss]


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return losses(Resident(CORPUS, ORDER, MODEL.context, MODEL.vocabulary), None)


def test_each_device_gets_its_rows_of_what_is_read_from_disk(expected: list[float]):
    devices = Placement(make_mesh(fsdp=8), side_by_side=False)
    items = Feed(streamed(), devices).items(5, 2, size=3)
    assert items.shape == (3, 8, 17)
    assert {part.data.shape for part in items.addressable_shards} == {(3, 1, 17)}
    whole = streamed().chunk(5, 2)
    np.testing.assert_array_equal(items, whole[[0, 1, 1]])
    np.testing.assert_allclose(losses(streamed(), make_mesh(fsdp=8)), expected, rtol=1e-4)


def test_runs_side_by_side_read_the_same_rows():
    devices = Placement(make_mesh(lanes=2, fsdp=4), side_by_side=True)
    items = Feed(streamed(), devices).items(0, 1)
    assert {part.data.shape for part in items.addressable_shards} == {(1, 2, 17)}
    np.testing.assert_array_equal(items, streamed().chunk(0, 1))


def test_each_of_two_processes_reads_half_of_every_batch(expected: list[float], tmp_path: Path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    here = Path(__file__).parents[2]
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    calls = [f"one_of_two({address!r}, {process}, {str(tmp_path / str(process))!r})" for process in (0, 1)]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import one_of_two; {call}"],
            env={**os.environ, "XLA_FLAGS": flags},
            cwd=here,
            stdout=subprocess.DEVNULL,
        )
        for call in calls
    ]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    written = [json.loads((tmp_path / str(process)).read_text()) for process in (0, 1)]
    assert [read for read, _ in written] == [[4, 17], [4, 17]]
    for _, found in written:
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def one_of_two(address: str, process: int, file: str) -> None:
    """Train in one of two processes with two devices each; write the shape of what it reads for a step, and losses."""
    jax.distributed.initialize(address, 2, process)
    sizes: set[tuple[int, ...]] = set()
    read = Streamed.chunk

    def watched(self: Streamed, start: int, count: int) -> np.ndarray:
        found = read(self, start, count)
        sizes.add(found.shape[1:])
        return found

    Streamed.chunk = watched
    found = losses(streamed(), make_mesh(fsdp=4))
    Path(file).write_text(json.dumps([*sizes, found]))  # Gloo prints what it likes, when it likes
