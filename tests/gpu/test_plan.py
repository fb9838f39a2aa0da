"""A GPU that the compiler is told about takes the memory of the GPU that is here."""

from dataclasses import replace

import jax
import pytest

from widthwise.train import Spec, elsewhere, resolve
from widthwise.train.compiling import FOR_GPUS
from widthwise.train.elsewhere import Target
from widthwise.train.gpus import gpu_here


@pytest.mark.parametrize(("width", "remat"), [(2048, "none"), (2048, "block"), (3072, "activation")])
def test_a_mocked_gpu_takes_the_memory_of_the_one_that_is_here(width: int, remat: str):
    if (gpu := gpu_here()) is None:
        pytest.skip("this kind of GPU is not described")
    spec = Spec(width=width, blocks=8, head_dim=128, context=512, vocabulary=32101, batch=256, data="synthetic")
    run = resolve(replace(spec, dtype="bfloat16", steps=100, warmup=0), vocabulary=32101, data={})
    program = replace(run.program, model=replace(run.program.model, remat=remat, for_gpu=True))
    mocked = Target(gpu).memory(program, run.lane, batch=256, devices=1)
    real = elsewhere._memory(program, run.lane, 256, jax.devices()[:1], dict(FOR_GPUS))
    assert mocked.arguments == real.arguments
    assert mocked.temporaries == pytest.approx(real.temporaries, rel=0.1)
