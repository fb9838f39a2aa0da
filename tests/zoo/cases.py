"""The zoo: tiny models written the way code bases write them, with the roles that theory gives to their parameters.

The models know nothing of Widthwise. The roles are derived by hand from how the forward pass uses each parameter, not
from any program, so that they can be held against one. Sizes that do not grow are odd or prime where they can be, so
that no size of a model is mistaken for another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from flax import nnx

from tests.zoo import (
    gpt2_linen,
    gru_dict,
    llama_nnx,
    lora_dict,
    lstm_linen,
    mamba_dict,
    moe_dict,
    resnet_equinox,
    scanned_dict,
    vit_equinox,
)

EMBEDDING = "embedding"
"""Only outputs grow: lookups, first layers, positions, and every vector with one entry per unit."""
HIDDEN = "hidden"
"""Inputs and outputs grow."""
READOUT = "readout"
"""Inputs grow, outputs do not, and only the logits are computed from it."""
INNER_READOUT = "inner readout"
"""Inputs grow, outputs do not, but later weights act on what it gives."""
TIED = "tied"
"""A lookup that is also the readout."""
UNSCALED = "unscaled"
"""Nothing grows."""

BASE_WIDTH = 32
WIDTHS = (64, 128, 256)

BATCH = 8
CONTEXT = 12


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, data for it, and what is known of its parameters.

    Attributes:
        name: Unique among the cases.
        build: From a width and a key to a module (NNX, Equinox) or to `(params, apply)` (Linen, dicts).
        call: From what `build` returns and inputs to logits; None if that is `model(inputs)` or
            `apply(params, inputs)`.
        example: Inputs for one call.
        targets: The classes to be predicted from `example`.
        roles: The role of every parameter by path pattern; each path matches exactly one.
        inputs: The fan-in of some parameters at width 64, by path pattern.
    """

    name: str
    build: Callable[[int, jax.Array], Any]
    example: np.ndarray
    targets: np.ndarray
    roles: Mapping[str, str]
    call: Callable[[Any, Any], jax.Array] | None = None
    inputs: Mapping[str, int] = field(default_factory=dict)

    @property
    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """The inputs and the targets."""
        return self.example, self.targets

    def logits(self, model: Any, inputs: Any) -> jax.Array:
        """Return the logits of what `build` returns, whatever its kind."""
        if self.call is not None:
            return self.call(model, inputs)
        if isinstance(model, tuple):
            params, apply = model
            return apply(params, inputs)
        return model(inputs)

    def loss(self, model: Any, batch: tuple[Any, Any]) -> jax.Array:
        """Return the mean cross-entropy of what `build` returns on a batch."""
        return self.loss_and_logits(model, batch)[0]

    def loss_and_logits(self, model: Any, batch: tuple[Any, Any]) -> tuple[jax.Array, jax.Array]:
        """Return the loss and the logits that it was computed from."""
        inputs, targets = batch
        logits = self.logits(model, inputs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean(), logits


def trainable(model: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the parameters of what a case builds, and the function that puts others in their place."""
    if isinstance(model, tuple):
        params, apply = model
        return params, lambda params: (params, apply)
    if isinstance(model, nnx.Module):
        graph, params, rest = nnx.split(model, nnx.Param, ...)
        return params, lambda params: nnx.merge(graph, params, rest)
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    return params, lambda params: eqx.combine(params, rest)


def text(vocabulary: int) -> dict[str, np.ndarray]:
    """Return tokens and, as targets, the tokens that follow them: mostly the same successor of each token."""
    rng = np.random.default_rng(vocabulary)
    successor = rng.permutation(vocabulary)
    tokens = rng.integers(vocabulary, size=(BATCH, CONTEXT + 1))
    for t in range(CONTEXT):
        follow = rng.random(BATCH) < 0.8
        tokens[:, t + 1] = np.where(follow, successor[tokens[:, t]], tokens[:, t + 1])
    tokens = tokens.astype(np.int32)
    return {"example": tokens[:, :-1], "targets": tokens[:, 1:]}


def clusters(classes: int, *shape: int) -> dict[str, np.ndarray]:
    """Return inputs of this shape, such as images with the channels first: the mean of their class, with noise."""
    rng = np.random.default_rng(classes)
    means = rng.normal(size=(classes, *shape))
    targets = rng.integers(classes, size=BATCH).astype(np.int32)
    example = means[targets] + 0.5 * rng.normal(size=(BATCH, *shape))
    return {"example": example.astype(np.float32), "targets": targets}


def over_images(model: Callable[[Any], jax.Array], images: Any) -> jax.Array:
    """Return the logits of a model of one image for a batch of them."""
    return jax.vmap(model)(images)


GPT2_ROLES = {
    "*wpe/embedding": EMBEDDING,
    "*ln_*/scale": EMBEDDING,
    "*ln_*/bias": EMBEDDING,
    "*attn/c_attn/kernel": HIDDEN,
    "*attn/c_proj/kernel": HIDDEN,
    "*mlp/c_fc/kernel": HIDDEN,
    "*mlp/c_proj/kernel": HIDDEN,
    "*/c_*/bias": EMBEDDING,
}
LLAMA_ROLES = {
    "embed/embedding": EMBEDDING,
    "*norm/scale": EMBEDDING,
    "blocks/*attention/q_proj/kernel": HIDDEN,
    # The number of key/value heads is fixed; the kernels of the output projection act on what they give.
    "blocks/*attention/k_proj/kernel": INNER_READOUT,
    "blocks/*attention/v_proj/kernel": INNER_READOUT,
    "blocks/*attention/o_proj/kernel": HIDDEN,
    "blocks/*mlp/*_proj/kernel": HIDDEN,
    "lm_head/kernel": READOUT,
}
LLAMA_INPUTS = {
    "blocks/*attention/q_proj/kernel": 64,
    "blocks/*attention/k_proj/kernel": 64,
    "blocks/*attention/o_proj/kernel": 64,
    "blocks/*mlp/up_proj/kernel": 64,
    "blocks/*mlp/down_proj/kernel": 192,
    "lm_head/kernel": 64,
}

GPT2_INPUTS = {"*attn/c_attn/kernel": 64, "*attn/c_proj/kernel": 64, "*mlp/c_fc/kernel": 64, "*mlp/c_proj/kernel": 256}

CASES: tuple[Case, ...] = (
    Case(
        name="gpt2-linen-untied",
        build=gpt2_linen.build_untied,
        **text(gpt2_linen.VOCABULARY),
        roles={**GPT2_ROLES, "wte/embedding": EMBEDDING, "lm_head/kernel": READOUT},
        inputs={**GPT2_INPUTS, "lm_head/kernel": 64},
    ),
    Case(
        name="gpt2-linen-tied",
        build=gpt2_linen.build_tied,
        **text(gpt2_linen.VOCABULARY),
        roles={**GPT2_ROLES, "params/wte/embedding": TIED},
        inputs=GPT2_INPUTS,
    ),
    Case(
        name="moe-dict",
        build=moe_dict.build,
        **text(moe_dict.VOCABULARY),
        roles={
            "embed": EMBEDDING,
            "*norm*": EMBEDDING,
            "layers/*/attention/w?": HIDDEN,
            # The gates weigh what the experts give, which later layers read.
            "layers/*/moe/router": INNER_READOUT,
            "layers/*/moe/w_up": HIDDEN,
            "layers/*/moe/b_up": EMBEDDING,
            "layers/*/moe/w_down": HIDDEN,
            "head": READOUT,
        },
        inputs={
            "layers/*/attention/wq": 64,
            "layers/*/attention/wo": 64,
            "layers/*/moe/router": 64,
            "layers/*/moe/w_up": 64,
            "layers/*/moe/w_down": 256,
            "head": 64,
        },
    ),
    Case(
        name="llama-nnx-looped",
        build=llama_nnx.build_looped,
        **text(llama_nnx.VOCABULARY),
        roles=LLAMA_ROLES,
        inputs=LLAMA_INPUTS,
    ),
    Case(
        name="llama-nnx-scanned",
        build=llama_nnx.build_scanned,
        **text(llama_nnx.VOCABULARY),
        roles=LLAMA_ROLES,
        inputs=LLAMA_INPUTS,
    ),
    Case(
        name="resnet-equinox",
        build=resnet_equinox.build,
        call=over_images,
        **clusters(resnet_equinox.CLASSES, 3, 10, 10),
        roles={
            "stem/*": EMBEDDING,
            "*norm*": EMBEDDING,
            "blocks/*/conv?/weight": HIDDEN,
            "blocks/*/shortcut/weight": HIDDEN,
            "head/weight": READOUT,
            "head/bias": UNSCALED,
        },
        inputs={
            "stem/weight": 3 * 9,
            "blocks/0/conv1/weight": 64 * 9,
            "blocks/1/conv1/weight": 64 * 9,
            "blocks/1/conv2/weight": 128 * 9,
            "blocks/1/shortcut/weight": 64,
            "head/weight": 128,
        },
    ),
    Case(
        name="vit-equinox",
        build=vit_equinox.build,
        call=over_images,
        **clusters(vit_equinox.CLASSES, 3, 12, 12),
        roles={
            "patch_embedding/*": EMBEDDING,
            "class_token": EMBEDDING,
            "positions": EMBEDDING,
            "*norm*": EMBEDDING,
            "blocks/*/attention/*/weight": HIDDEN,
            "blocks/*/attention/output_proj/bias": EMBEDDING,
            "blocks/*/mlp/layers/*/weight": HIDDEN,
            "blocks/*/mlp/layers/*/bias": EMBEDDING,
            "head/weight": READOUT,
            "head/bias": UNSCALED,
        },
        inputs={
            "patch_embedding/weight": 3 * 16,
            "blocks/*/attention/query_proj/weight": 64,
            "blocks/*/attention/output_proj/weight": 64,
            "blocks/*/mlp/layers/1/weight": 256,
            "head/weight": 64,
        },
    ),
    Case(
        name="lstm-linen",
        build=lstm_linen.build,
        **text(lstm_linen.VOCABULARY),
        roles={
            "params/Embed_0/embedding": EMBEDDING,
            "params/OptimizedLSTMCell_?/*/kernel": HIDDEN,
            "params/OptimizedLSTMCell_?/*/bias": EMBEDDING,
            "params/Dense_0/kernel": READOUT,
            "params/Dense_0/bias": UNSCALED,
        },
        inputs={"params/OptimizedLSTMCell_?/*/kernel": 64, "params/Dense_0/kernel": 64},
    ),
    Case(
        name="mamba-dict",
        build=mamba_dict.build,
        **text(mamba_dict.VOCABULARY),
        roles={
            "embed": TIED,
            "*norm*": EMBEDDING,
            "layers/*/in_proj": HIDDEN,
            # One filter per channel: its outputs grow, the channels that one output sums over do not.
            "layers/*/conv_kernel": EMBEDDING,
            "layers/*/conv_bias": EMBEDDING,
            # The step sizes and the two sides of the state, which the recurrence multiplies with growing activations.
            "layers/*/x_proj": INNER_READOUT,
            "layers/*/dt_proj/kernel": EMBEDDING,
            "layers/*/dt_proj/bias": EMBEDDING,
            "layers/*/A_log": EMBEDDING,
            "layers/*/D": EMBEDDING,
            "layers/*/out_proj": HIDDEN,
        },
        inputs={
            "layers/*/in_proj": 64,
            "layers/*/conv_kernel": 4,
            "layers/*/x_proj": 128,
            "layers/*/dt_proj/kernel": 3,
            "layers/*/out_proj": 128,
        },
    ),
    Case(
        name="lora-dict",
        build=lora_dict.build,
        **clusters(lora_dict.CLASSES, lora_dict.FEATURES),
        roles={
            "input/*": EMBEDDING,
            "lora/*/W": HIDDEN,
            # Between the two factors there are only as many numbers as the rank: A reads them off, B reads them in.
            "lora/*/A": INNER_READOUT,
            "lora/*/B": EMBEDDING,
            "lora/*/bias": EMBEDDING,
            "normalized/v": HIDDEN,
            "normalized/g": EMBEDDING,
            "normalized/bias": EMBEDDING,
            "output/W": READOUT,
            "output/bias": UNSCALED,
        },
        inputs={
            "input/W": 13,
            "lora/*/W": 64,
            "lora/*/A": 64,
            "lora/*/B": 3,
            "normalized/v": 64,
            "output/W": 64,
        },
    ),
    Case(
        name="scanned-dict",
        build=scanned_dict.build,
        **text(scanned_dict.VOCABULARY),
        roles={
            "embedder": EMBEDDING,
            "blocks/*/norm": EMBEDDING,
            "blocks/attention/qkv": HIDDEN,
            # One entry per dimension of a head, and heads do not grow, only their number does.
            "blocks/attention/?_norm": UNSCALED,
            "blocks/attention/out": HIDDEN,
            "blocks/mlp/wi": HIDDEN,
            "blocks/mlp/bi": EMBEDDING,
            "blocks/mlp/wo": HIDDEN,
            "final_norm": EMBEDDING,
            "logits/kernel": READOUT,
            "logits/bias": UNSCALED,
        },
        inputs={
            "blocks/attention/qkv": 64,
            "blocks/attention/out": 64,
            "blocks/mlp/wi": 64,
            "blocks/mlp/wo": 128,
            "logits/kernel": 64,
        },
    ),
    Case(
        name="gru-dict",
        build=gru_dict.build,
        **text(gru_dict.VOCABULARY),
        roles={
            "embed": EMBEDDING,
            "h0": EMBEDDING,
            "w_?": HIDDEN,
            "b_?": EMBEDDING,
            "out/w": READOUT,
            "out/b": UNSCALED,
        },
        inputs={"w_?": 64, "out/w": 64},
    ),
)
