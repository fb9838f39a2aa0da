"""Planning needs shapes only: a Llama of 7 billion parameters takes seconds, and hardly any memory."""

import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import widthwise as ww
from tests.zoo import llama_nnx


def build(width, key):
    """Return a Llama with as many layers and tokens as the one of the third generation with 8 billion parameters."""
    llama_nnx.VOCABULARY, llama_nnx.LAYERS, llama_nnx.HEAD_DIM, llama_nnx.KV_HEADS = 128_256, 32, 32, 8
    return llama_nnx.build_looped(width, key)


def measure() -> dict[str, float]:
    """Plan the large model, and return what it takes; run in a process of its own."""
    jnp.ones(3).block_until_ready()
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    plan = ww.plan(build, width=4096, base_width=256, example=jax.ShapeDtypeStruct((1, 64), jnp.int32))
    seconds = time.process_time() - start
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "parameters": sum(math.prod(p.shape) for p in plan.parameters),
        "kinds": len(plan.explain().rows),
        "seconds": seconds,
        "megabytes": kilobytes / 1024,
    }


def test_a_model_of_seven_billion_parameters_is_planned_in_seconds():
    code = "import json; from tests.planning.test_large_models import measure; print(json.dumps(measure()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["parameters"] > 7e9
    assert found["kinds"] == 12
    assert found["seconds"] < 30
    assert found["megabytes"] < 500
