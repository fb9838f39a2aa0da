"""Checkpoints are written once, in the background, and no more of them are in memory than there is room for."""

import errno
import gc
import re
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.train.runs import LANGUAGE, lane, program
from widthwise.train import Checkpoints, Lanes, train
from widthwise.train.checkpoints import _has_room


def kept_in(folder: Path) -> dict[str, list[int]]:
    return {name: sorted(int(path.name) for path in (folder / name).iterdir()) for name in ("best", "last")}


def as_it_is(step: int, record: Any) -> Any:
    return record


def test_a_state_is_written_once_where_the_best_of_them_is_kept(tmp_path: Path):
    checkpoints = Checkpoints(tmp_path)
    for step, best in ((1, True), (2, False), (3, False), (4, False), (5, True), (6, False)):
        checkpoints.save(step, [jnp.full(2, step)], {}, best=best)
    checkpoints.close()
    assert kept_in(tmp_path) == {"best": [5], "last": [4, 6]}
    again = Checkpoints(tmp_path)
    step, (state,), _ = again.restore([jnp.zeros(2, int)], as_it_is) or pytest.fail("nothing was kept")
    assert (step, state.tolist()) == (6, [6, 6])


@pytest.mark.parametrize("room", [True, False])
def test_the_best_waits_in_memory_until_a_checkpoint_is_due_if_there_is_room(tmp_path: Path, room: bool, monkeypatch):
    monkeypatch.setattr("widthwise.train.checkpoints._has_room", lambda states, copies: room)
    checkpoints = Checkpoints(tmp_path)

    def save(step: int, **how: bool) -> dict[str, list[int]]:
        state = jnp.full(2, step)
        checkpoints.save(step, [state], {"step": step}, **how)
        state.delete()  # as the next step would
        checkpoints._finish()
        checkpoints._best.wait_until_finished()
        checkpoints._last.wait_until_finished()
        return kept_in(tmp_path)

    assert save(1, best=True, due=False) == {"best": [] if room else [1], "last": []}
    assert save(2, best=True, due=False) == {"best": [] if room else [2], "last": []}
    assert save(3) == {"best": [2], "last": [3]}
    assert save(4, best=True, due=False) == {"best": [2] if room else [4], "last": [3]}
    assert save(5, best=True) == {"best": [5], "last": [3]}  # the one before is not worth writing any more
    save(6, best=True, due=False)
    checkpoints.close()
    assert kept_in(tmp_path) == {"best": [6], "last": [3]}
    found = Checkpoints(tmp_path).restore([jnp.zeros(2, int)], as_it_is) or pytest.fail("nothing was kept")
    assert (found[0], found[1][0].tolist(), found[2]) == (6, [6, 6], {"step": 6})


def test_at_no_time_there_are_more_copies_than_room_was_asked_for(tmp_path: Path, monkeypatch):
    asked, copies, most, go_on = [], [], 0, threading.Event()
    put = jax.device_put

    def alive() -> int:
        gc.collect()
        return sum(copy() is not None for copy in copies)

    def copy(x: jax.Array, *where: Any, **how: Any) -> jax.Array:
        nonlocal most
        copied = put(x, *where, **how)
        copies.append(weakref.ref(copied))
        most = max(most, alive())
        return copied

    gc.collect()
    gc.freeze()  # what other tests left is not searched every time
    checkpoints = Checkpoints(tmp_path)
    for manager in (checkpoints._best, checkpoints._last):
        save = manager.save
        monkeypatch.setattr(manager, "save", lambda *a, save=save, **k: go_on.wait() and save(*a, **k))
    monkeypatch.setattr("widthwise.train.checkpoints._has_room", lambda states, copies: asked.append(copies) or True)
    monkeypatch.setattr(jax, "device_put", copy)
    checkpoints.save(1, [jnp.zeros(2)], {}, best=True, due=False)
    checkpoints.save(2, [jnp.zeros(2)], {})  # two are being written now, and do not get on
    for step in (3, 4, 5):
        checkpoints.save(step, [jnp.zeros(2)], {}, best=True, due=False)
    go_on.set()
    checkpoints.save(6, [jnp.zeros(2)], {})
    checkpoints.close()
    assert asked == [most]
    assert alive() == 0


def test_memory_that_is_gone_after_all_is_no_error(tmp_path: Path, monkeypatch):
    def fail(*args: object, **how: object) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, [jnp.full(2, 1)], {}, best=True, due=False)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "device_put", fail)
        checkpoints.save(2, [jnp.full(2, 2)], {})
    checkpoints.close()
    assert kept_in(tmp_path) == {"best": [1], "last": [2]}


def test_room_is_what_a_device_never_needed():
    @dataclass(frozen=True)
    class Device:
        platform: str
        limit: int | None = None

        def memory_stats(self) -> dict[str, int] | None:
            return None if self.limit is None else {"bytes_limit": self.limit, "peak_bytes_in_use": 30}

    def states(device: Any) -> list[Any]:
        shard = SimpleNamespace(device=device, data=SimpleNamespace(nbytes=5))
        return [SimpleNamespace(addressable_shards=[shard]) for _ in range(2)]

    assert _has_room(states(Device("gpu", limit=60)), copies=3)
    assert not _has_room(states(Device("gpu", limit=59)), copies=3)
    assert not _has_room(states(Device("gpu")), copies=3)  # which does not say
    assert _has_room(states(Device("cpu")), copies=3)


@pytest.mark.parametrize("late", [True, False])
def test_what_goes_wrong_while_a_checkpoint_is_written_is_raised_by_the_next(tmp_path: Path, monkeypatch, late: bool):
    def fail(*args: object, **options: object) -> None:
        raise OSError("no space left on device")

    checkpoints = Checkpoints(tmp_path)
    monkeypatch.setattr(checkpoints._last, "wait_until_finished" if late else "save", fail)
    checkpoints.save(1, [jnp.zeros(2)], {})
    with pytest.raises(OSError, match="no space left"):
        checkpoints.save(2, [jnp.zeros(2)], {})


def test_what_is_left_to_write_is_written_after_an_error_and_not_after_an_interrupt(tmp_path: Path):
    def end(step: int, error: type[BaseException]) -> None:
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(step, [jnp.zeros(2)], {}, best=True, due=False)
            raise error("something")

    for step, error in ((1, RuntimeError), (2, KeyboardInterrupt)):
        with pytest.raises(error, match="something"):
            end(step, error)
    assert kept_in(tmp_path) == {"best": [1], "last": []}


def test_what_cannot_be_read_is_moved_aside_and_reported_once(tmp_path: Path, capfd):
    said: list[str] = []
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, [jnp.full(200, step), jnp.full((20, 20), step)], {})
    lost = [path for path in (tmp_path / "last" / "2" / "state").rglob("d/*") if path.is_file()]
    for path in lost:
        path.unlink()  # for which Orbax raises a plain Exception, and complains in pages
    with Checkpoints(tmp_path, say=said.append) as checkpoints:
        found = checkpoints.restore([jnp.zeros(200, int), jnp.zeros((20, 20), int)], as_it_is) or pytest.fail(
            "nothing was kept"
        )
        gc.collect()
        assert (found[0], checkpoints.latest()) == (1, 1)
        checkpoints.save(2, [jnp.full(200, 3)], {})
    (aside,) = (tmp_path / "unreadable").iterdir()
    assert (aside / "state").is_dir()
    assert len(said) == 1
    assert said[0].startswith("the checkpoint of step 2 cannot be read (")
    assert f"is now {str(aside)!r}: trying an older one" in said[0]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("file", ["record/metadata", "state/d/*", "state/_METADATA"])
def test_a_bit_that_flipped_is_noticed(tmp_path: Path, file: str):
    said: list[str] = []
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, [jnp.arange(200.0)], {"losses": [step / 7] * 50})
    path, *_ = (tmp_path / "last" / "2").glob(file)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with Checkpoints(tmp_path, say=said.append) as checkpoints:
        found = checkpoints.restore([jnp.zeros(200)], as_it_is) or pytest.fail("nothing was kept")
    assert (found[0], found[1][0].tolist(), found[2]) == (1, list(range(200)), {"losses": [1 / 7] * 50})
    assert len(said) == 1
    assert said[0].startswith("the checkpoint of step 2 cannot be read (")


@pytest.mark.parametrize("room", [True, False])
def test_every_number_of_a_state_is_checked(tmp_path: Path, room: bool, monkeypatch):
    monkeypatch.setattr("widthwise.train.checkpoints._has_room", lambda states, copies: room)
    said: list[str] = []
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, [jnp.ones(3, jnp.bfloat16), jnp.asarray(2.5)], {})
    with Checkpoints(tmp_path, say=said.append) as checkpoints:
        manager, restore = checkpoints._last, checkpoints._last.restore

        def changed(step: int, args: Any) -> Any:
            found = restore(step, args=args)
            return {"record": found["record"], "state": [found["state"][0], jnp.asarray(2.75)]}

        monkeypatch.setattr(manager, "restore", changed)
        assert checkpoints.restore([jnp.zeros(3, jnp.bfloat16), jnp.zeros(())], as_it_is) is None
    assert "(its state has changed since it was written)" in said[0]


def test_a_checkpoint_of_an_older_version_has_no_checksum_and_is_read(tmp_path: Path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("widthwise.train.checksums.with_checksum", lambda record, states: record)
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(1, [jnp.ones(2)], {"losses": []})
    with Checkpoints(tmp_path) as checkpoints:
        found = checkpoints.restore([jnp.zeros(2)], as_it_is) or pytest.fail("nothing was kept")
    assert (found[0], found[2]) == (1, {"losses": []})


@pytest.mark.parametrize(
    "record",
    [[], {}, {"losses": 1, "points": 1, "alignment": 1}, {"losses": [[1.0]], "points": [[]], "alignment": [[]]}],
    ids=["list", "nothing", "numbers", "too short"],
)
def test_a_record_of_another_kind_is_moved_aside_and_training_starts_over(tmp_path: Path, record: Any):
    said: list[str] = []
    lanes = Lanes(program(), [lane()], LANGUAGE, side_by_side=False)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(20, lanes.start(), record)
    with Checkpoints(tmp_path, say=said.append) as checkpoints:
        (result,) = train(lanes, LANGUAGE.held_out(2), checkpoints=checkpoints)
    assert (result.status, len(result.train_loss)) == ("finished", 40)
    assert len(said) == 1
    assert "step 20 cannot be read (its record " in said[0]


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error"), ValueError("Failed to read: [os_error_code='5']")]
)
def test_a_file_system_that_fails_is_named_and_costs_no_checkpoint(tmp_path: Path, monkeypatch, error: Exception):
    def fail(*args: object, **options: object) -> None:
        raise error

    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, [jnp.zeros(2)], {})
    with Checkpoints(tmp_path) as checkpoints:
        monkeypatch.setattr(checkpoints._last, "restore", fail)
        with pytest.raises(OSError, match=r"last/1' cannot be read: Input/output error$"):
            checkpoints.restore([jnp.zeros(2)], as_it_is)
    assert kept_in(tmp_path) == {"best": [], "last": [1]}


@pytest.mark.parametrize("method", ["save", "wait_until_finished", "close"])
def test_a_full_disk_is_named_in_one_line(tmp_path: Path, monkeypatch, method: str):
    def fail(*args: object, **options: object) -> None:
        raise ValueError(f"RESOURCE_EXHAUSTED: Error writing {'pages' * 100}: No space left [os_error_code='28']")

    checkpoints = Checkpoints(tmp_path)
    monkeypatch.setattr(checkpoints._last, method, fail)
    checkpoints.save(1, [jnp.zeros(2)], {})
    line = f"a checkpoint cannot be written to {str(tmp_path)!r}: No space left on device"
    with pytest.raises(OSError, match=f"^{re.escape(line)}$"):
        checkpoints.close()


def test_one_of_several_processes_does_not_wait_for_the_others_after_an_error(tmp_path: Path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(checkpoints, "close", lambda: pytest.fail("the others would have to take part"))
    with pytest.raises(RuntimeError, match="something"), checkpoints:
        raise RuntimeError("something")
