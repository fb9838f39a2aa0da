"""The paper's decoder-only transformer, in Flax NNX (appendix, "Architecture and training details").

Learned positions, LayerNorm before attention, MLP and readout, GELU, no biases, no dropout, embedding and readout not
tied. The blocks are a plain list: on a CPU this trains twice as fast as stacked blocks under `lax.scan`, and compiles
three times faster. The attention scale is an argument because it depends on the parameterization.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from widthwise.models.attention import causal_attention
from widthwise.models.cross_entropy import cross_entropy, cross_entropy_in_slices
from widthwise.models.gelu import gelu
from widthwise.models.storing import REMATERIALIZATIONS, Rematerialization, Whole, cast, checkpointed, usual
from widthwise.parameterize import Axes, PyTree, Rule
from widthwise.theory import Parameterization, Role

_MATRIX = Axes(inputs=(0,), outputs=(1,))
_NOTHING = nnx.initializers.zeros_init()  # modules only provide shapes; `draw` draws the parameters


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A transformer. The defaults are the paper's; `width` must be a multiple of `head_dim`.

    Attributes:
        width: The model dimension D; the MLP is four times as wide.
        blocks: The number of blocks.
        head_dim: The dimension of a head, the same at every width; the number of heads grows.
        context: The length of the longest sequence.
        vocabulary: The number of tokens.
        dtype: The precision of computations: `float32`, `bfloat16` or `float64`. Parameters and logits are at least
            float32.
        remat: What the backward pass recomputes instead of storing it: `none`, `activation` (that of the MLP), `block`
            (everything within a block), or `full` (the logits as well). By default `none`; in half precision, from
            width 4096 on, `activation`.
        for_gpu: Whether to compute with kernels for GPUs; None to do so where JAX finds one.
    """

    width: int
    blocks: int = 8
    head_dim: int = 128
    context: int = 512
    vocabulary: int = 32101
    dtype: str = "float32"
    remat: Rematerialization | None = None
    for_gpu: bool | None = None

    def __post_init__(self) -> None:
        for name in ("width", "blocks", "head_dim", "context", "vocabulary"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value}: expected 1 or more")
        if self.width % self.head_dim:
            raise ValueError(f"width is {self.width}: expected a multiple of the head dimension {self.head_dim}")
        if self.dtype not in ("float32", "bfloat16", "float64"):
            raise ValueError(f"dtype is {self.dtype!r}: expected float32, bfloat16 or float64")
        if self.recomputes not in REMATERIALIZATIONS:
            raise ValueError(f"remat is {self.remat!r}: expected one of {', '.join(REMATERIALIZATIONS)}")

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.width // self.head_dim

    def attention_scale(self, parameterization: Parameterization) -> float:
        """Return the factor on attention logits: 1/√h for standard and NTK, 1/h for muP and mean-field."""
        assumes_alignment = parameterization.readout.total >= 1
        return self.head_dim ** (-1.0 if assumes_alignment else -0.5)

    @property
    def branch_ends(self) -> tuple[str, ...]:
        """How the paths of the last weights of residual branches end: branches are linear in these."""
        return ("/attention/out/kernel", "/mlp/down/kernel")

    @property
    def recomputes(self) -> Rematerialization:
        """What the backward pass recomputes."""
        return usual(self.width, jnp.dtype(self.dtype)) if self.remat is None else self.remat

    @property
    def on_gpu(self) -> bool:
        """Whether this computes with kernels for GPUs."""
        return jax.default_backend() == "gpu" if self.for_gpu is None else self.for_gpu

    def shapes(self) -> PyTree:
        """Return the shapes of the parameters."""
        return _abstract(self, x64=_has_float64())[1]

    def rules(self, parameterization: Parameterization) -> dict[str, Rule]:
        """Return the role of every parameter; embeddings whose init exponent is 0 start at 0.01, as in the paper."""
        lookup = Rule(role=Role.EMBEDDING, axes=_MATRIX, init=0.01 if parameterization.embedding.b == 0 else 1.0)
        hidden = Rule(role=Role.HIDDEN, axes=_MATRIX)
        return {
            "tokens/embedding": lookup,
            "positions/embedding": lookup,
            "*norm/scale": Rule(role=Role.EMBEDDING, axes=Axes(outputs=(0,))),
            "blocks/*/attention/*/kernel": hidden,
            "blocks/*/mlp/*/kernel": hidden,
            "readout/kernel": Rule(role=Role.READOUT, axes=_MATRIX),
        }

    def logits(
        self, params: PyTree, tokens: Int[Array, "batch time"], attention_scale: Float[Array, ""] | float
    ) -> Float[Array, "batch time vocabulary"]:
        """Return the logits. `params` are effective parameters; see `self.attention_scale`."""
        decoder = replace(self, remat="none")._decoder(params, tokens)
        logits = decoder.readout(decoder.hidden(tokens, attention_scale, cast)).reshape(*tokens.shape, -1)
        return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))

    def losses(
        self,
        params: PyTree,
        tokens: Int[Array, "batch time"],
        labels: Int[Array, "batch time"],
        attention_scale: Float[Array, ""] | float,
        *,
        whole: Whole = cast,
    ) -> Float[Array, "batch time"]:
        """Return the cross-entropy of every label, in nats: the same as from `logits`, but without float32 logits.

        Args:
            params: Effective parameters; of matrices that are split over devices, the part of this one.
            tokens: The tokens.
            labels: What follows each of them.
            attention_scale: The factor on attention logits.
            whole: Returns a whole matrix from a part, where it acts.
        """
        decoder = self._decoder(params, tokens)
        hidden = decoder.hidden(tokens, attention_scale, whole)
        kernel = _kernel(decoder.readout, hidden.dtype, whole)
        losses = cross_entropy_in_slices if self.recomputes == "full" else cross_entropy
        return losses(hidden, kernel, labels.reshape(-1)).reshape(labels.shape)

    def _decoder(self, params: PyTree, tokens: jax.Array) -> "_Decoder":
        if tokens.shape[-1] > self.context:
            raise ValueError(f"a sequence of {tokens.shape[-1]} tokens: expected at most the context, {self.context}")
        return nnx.merge(_abstract(self, x64=_has_float64())[0], params)


def _has_float64() -> bool:
    return jax.dtypes.canonicalize_dtype(jnp.float64) == jnp.float64


@functools.lru_cache(maxsize=64)
def _abstract(config: Transformer, *, x64: bool) -> tuple[Any, PyTree]:
    if config.dtype == "float64" and not x64:
        raise ValueError("dtype is 'float64' but JAX computes in float32: use it within jax.enable_x64(True)")
    return nnx.split(nnx.eval_shape(lambda: _Decoder(config, rngs=nnx.Rngs(0))))


class _Decoder(nnx.Module):
    def __init__(self, config: Transformer, *, rngs: nnx.Rngs) -> None:
        # Rows are rounded after the lookup, so that the gradients of frequent tokens are accumulated in float32.
        wide = _dtypes(config)["param_dtype"]
        self.tokens, self.positions = (
            nnx.Embed(rows, config.width, embedding_init=_NOTHING, dtype=wide, param_dtype=wide, rngs=rngs)
            for rows in (config.vocabulary, config.context)
        )
        self.blocks = nnx.List([_Block(config, rngs=rngs) for _ in range(config.blocks)])
        self.norm = _norm(config, rngs)
        self.readout = _linear(config, config.width, config.vocabulary, rngs)
        self.dtype = jnp.dtype(config.dtype)
        self.recomputes = config.recomputes

    def hidden(self, tokens: jax.Array, attention_scale: jax.Array | float, whole: Whole) -> jax.Array:
        """Return the input of the readout, one row per token."""
        batch, time = tokens.shape
        x = (_rows(self.tokens, tokens, whole) + _rows(self.positions, jnp.arange(time), whole)).astype(self.dtype)
        x = x.reshape(batch * time, -1)  # on a CPU, XLA trains 1.5 times faster with matrices of two axes
        graphs, blocks = zip(*map(nnx.split, self.blocks), strict=True)
        apply = functools.partial(_apply, graph=graphs[0], batch=batch, recomputes=self.recomputes, whole=whole)
        if whole is cast:
            for params in blocks:
                x = apply(x, attention_scale, params)
        else:  # a loop, or the compiler gathers the matrices of later blocks while it computes the first
            stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *blocks)
            x, _ = jax.lax.scan(lambda x, params: (apply(x, attention_scale, params), None), x, stacked)
        return self.norm(x)


class _Block(nnx.Module):
    def __init__(self, config: Transformer, *, rngs: nnx.Rngs) -> None:
        self.attention_norm = _norm(config, rngs)
        self.attention = _Attention(config, rngs=rngs)
        self.mlp_norm = _norm(config, rngs)
        self.mlp = _MLP(config, rngs=rngs)

    def __call__(self, x: jax.Array, attention_scale: jax.Array | float, *, batch: int, whole: Whole) -> jax.Array:
        x = x + self.attention(self.attention_norm(x), batch, attention_scale, whole)
        return x + self.mlp(self.mlp_norm(x), whole)


@functools.partial(jax.jit, static_argnames=("graph", "batch", "recomputes", "whole"))
def _apply(
    x: jax.Array,
    attention_scale: jax.Array | float,
    params: PyTree,
    *,
    graph: Any,
    batch: int,
    recomputes: Rematerialization,
    whole: Whole,
) -> jax.Array:
    """Apply a block. As a jitted function it is traced, differentiated and lowered once for all blocks."""

    def block(x: jax.Array, attention_scale: jax.Array | float, params: PyTree) -> jax.Array:
        return nnx.merge(graph, params)(x, attention_scale, batch=batch, whole=whole)

    return checkpointed(block, recomputes, whole)(x, attention_scale, params)


class _Attention(nnx.Module):
    def __init__(self, config: Transformer, *, rngs: nnx.Rngs) -> None:
        self.query, self.key, self.value, self.out = (
            _linear(config, config.width, config.width, rngs) for _ in range(4)
        )
        self.heads = config.heads
        self.on_gpu = config.on_gpu

    def __call__(self, x: jax.Array, batch: int, scale: jax.Array | float, whole: Whole) -> jax.Array:
        split = (batch, x.shape[0] // batch, self.heads, x.shape[1] // self.heads)
        # Scale the weight, which is smaller than the queries and still in float32.
        query = x @ _kernel(self.query, x.dtype, whole, scale)
        key, value = (x @ _kernel(layer, x.dtype, whole) for layer in (self.key, self.value))
        mixed = causal_attention(*(y.reshape(split) for y in (query, key, value)), on_gpu=self.on_gpu)
        return mixed.reshape(x.shape) @ _kernel(self.out, x.dtype, whole)


class _MLP(nnx.Module):
    def __init__(self, config: Transformer, *, rngs: nnx.Rngs) -> None:
        self.up = _linear(config, config.width, 4 * config.width, rngs)
        self.down = _linear(config, 4 * config.width, config.width, rngs)
        self.recomputes = config.recomputes
        self.on_gpu = config.on_gpu

    def __call__(self, x: jax.Array, whole: Whole) -> jax.Array:
        def rest(x: jax.Array) -> jax.Array:
            return gelu(x, on_gpu=self.on_gpu) @ _kernel(self.down, x.dtype, whole)

        if self.recomputes == "activation" and whole is cast:  # otherwise `checkpointed` does it
            rest = jax.checkpoint(rest)
        return rest(x @ _kernel(self.up, x.dtype, whole))


def _kernel(layer: nnx.Linear, dtype: Any, whole: Whole, scale: jax.Array | float | None = None) -> jax.Array:
    """Return the whole matrix of a layer, times a factor, in the precision in which it acts."""
    kernel = layer.kernel.get_value()
    return whole(kernel if scale is None else kernel * scale, (layer.in_features, layer.out_features), dtype)


def _rows(table: nnx.Embed, numbers: jax.Array, whole: Whole) -> jax.Array:
    """Return rows of an embedding."""
    rows = table.embedding.get_value()
    return jnp.take(whole(rows, (table.num_embeddings, table.features), rows.dtype), numbers, axis=0)


def _linear(config: Transformer, inputs: int, outputs: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(inputs, outputs, use_bias=False, kernel_init=_NOTHING, **_dtypes(config), rngs=rngs)


def _norm(config: Transformer, rngs: nnx.Rngs) -> nnx.LayerNorm:
    return nnx.LayerNorm(config.width, use_bias=False, **_dtypes(config), rngs=rngs)


def _dtypes(config: Transformer) -> dict[str, Any]:
    dtype = jnp.dtype(config.dtype)
    return {"dtype": dtype, "param_dtype": jnp.promote_types(dtype, jnp.float32)}
