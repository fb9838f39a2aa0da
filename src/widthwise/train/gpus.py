"""GPUs that large models train on: what there is to know of them, wherever one plans."""

from dataclasses import dataclass, replace
from pathlib import Path

_HERE = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What a kind of GPU is like.

    Attributes:
        name: Its short name.
        model: What it calls itself.
        memory: Bytes of memory.
        peak: FLOP/s of dense matrix products in bfloat16, by its data sheet.
        capability: The version of what it can do.
        cores: The number of multiprocessors.
        units: The number of float32 units in each.
        shared: Bytes of shared memory of a multiprocessor.
        cache: Bytes of the cache that all share.
        bandwidth: Bytes per second of its memory.
        clock: Its clock, in GHz.
    """

    name: str
    model: str
    memory: int
    peak: float
    capability: int
    cores: int
    units: int
    shared: int
    cache: int
    bandwidth: int
    clock: float

    @property
    def flops(self) -> float:
        """The FLOP/s at which training is planned: two fifths of the peak."""
        return 0.4 * self.peak


_H100 = Gpu(
    name="h100",
    model="NVIDIA H100 80GB HBM3",
    memory=84_942_979_072,
    peak=989e12,
    capability=9,
    cores=132,
    units=128,
    shared=233_472,
    cache=52_428_800,
    bandwidth=3_352_320_000_000,
    clock=1.98,
)

GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            name="a100",
            model="NVIDIA A100-SXM4-80GB",
            memory=85_100_068_864,
            peak=312e12,
            capability=8,
            cores=108,
            units=64,
            shared=167_936,
            cache=41_943_040,
            bandwidth=2_039_040_000_000,
            clock=1.41,
        ),
        _H100,
        replace(_H100, name="h200", model="NVIDIA H200", memory=150_754_820_096, bandwidth=4_800_000_000_000),
        replace(
            _H100,
            name="b200",
            model="NVIDIA B200",
            memory=191_514_411_008,
            peak=2250e12,
            capability=10,
            cores=148,
            cache=132_644_864,
            bandwidth=7_672_320_000_000,
            clock=1.965,
        ),
    )
}
"""From XLA's descriptions of devices and NVIDIA's data sheets; the memory of an H200 is what one reported."""


def gpu_here() -> Gpu | None:
    """Return the kind of GPU in this machine, if it is one of these; the GPU itself is not touched."""
    for file in _HERE.glob("*/information"):
        for gpu in GPUS.values():
            if gpu.model in file.read_text():
                return gpu
    return None
