"""Models unlike the zoo's, where what a parameter is cannot be told from shapes: their roles, found without rules."""

import jax
import jax.numpy as jnp
import pytest

import widthwise as ww


def normal(key, *shape):
    return jax.random.normal(key, shape) * shape[0] ** -0.5


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attention(weights, queries, values, heads):
    split = lambda x: x.reshape(*x.shape[:-1], heads, -1)  # noqa: E731
    q, k, v = split(queries @ weights["q"]), split(values @ weights["k"]), split(values @ weights["v"])
    mixed = jax.nn.softmax(jnp.einsum("...qhd,...khd->...hqk", q, k) / 8**0.5)
    mixed = jnp.einsum("...hqk,...khd->...qhd", mixed, v)
    return mixed.reshape(*mixed.shape[:-2], -1) @ weights["o"]


def attention_weights(key, n):
    return {name: normal(k, n, n) for name, k in zip("qkvo", jax.random.split(key, 4), strict=True)}


def roles(build, *example, **options) -> dict[str, str]:
    plan = ww.plan(build, width=64, base_width=32, example=example, **options)
    return {parameter.path: parameter.part.value for parameter in plan.parameters}


@pytest.mark.parametrize("kind", ["plain", "normalized", "self-attention first"])
def test_learned_latents_are_embeddings_and_what_acts_on_them_is_hidden(kind: str):
    def build(n, key):
        keys = jax.random.split(key, 5)
        params = {
            "inputs": normal(keys[0], 5, n),
            "latents": normal(keys[1], 7, n),
            "cross": attention_weights(keys[2], n),
            "self": attention_weights(keys[3], n),
            "head": normal(keys[4], n, 3),
        }

        def apply(params, x):
            x, z = x @ params["inputs"], params["latents"]
            ready = (lambda z: z) if kind == "plain" else norm
            if kind == "self-attention first":
                z = z + attention(params["self"], ready(z), ready(z), n // 8)
            z = z + attention(params["cross"], ready(z), x, n // 8)
            z = z + attention(params["self"], ready(z), ready(z), n // 8)
            return z.mean(-2) @ params["head"]

        return params, apply

    found = roles(build, jnp.ones((2, 9, 5)))
    assert found.pop("inputs") == found.pop("latents") == "embedding"
    assert found.pop("head") == "readout"
    assert set(found.values()) == {"hidden"}


def test_what_is_compared_with_another_tower_is_not_a_readout():
    """Its output is normalized, so a readout that starts smaller would only make its changes larger."""

    def build(n, key):
        keys = jax.random.split(key, 4)
        params = {
            "image": normal(keys[0], 12, n),
            "text": normal(keys[1], 17, n),
            "image_head": normal(keys[2], n, 8),
            "text_head": normal(keys[3], n, 8),
            "temperature": jnp.zeros(()),
        }

        def apply(params, images, tokens):
            a = jax.nn.relu(images @ params["image"]) @ params["image_head"]
            b = params["text"][tokens].mean(1) @ params["text_head"]
            a, b = (x / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
            return jnp.exp(params["temperature"]) * a @ b.T

        return params, apply

    assert roles(build, jnp.ones((4, 12)), jnp.ones((4, 5), int)) == {
        "image": "embedding",
        "text": "embedding",
        "image_head": "inner readout",
        "text_head": "inner readout",
        "temperature": "unscaled",
    }


def test_a_bottleneck_of_fixed_size_in_the_middle_is_an_inner_readout():
    def build(n, key):
        keys = jax.random.split(key, 6)
        shapes = {"in": (20, n), "mean": (n, 4), "spread": (n, 4), "decode": (4, n), "out": (n, 20)}
        params = {name: normal(k, *shape) for k, (name, shape) in zip(keys, shapes.items(), strict=False)}

        def apply(params, x):
            h = jnp.tanh(x @ params["in"])
            mean, spread = h @ params["mean"], h @ params["spread"]
            z = mean + jnp.exp(spread / 2) * jax.random.normal(jax.random.key(0), mean.shape)
            return jnp.tanh(z @ params["decode"]) @ params["out"], mean, spread

        return params, apply

    assert roles(build, jnp.ones((4, 20))) == {
        "decode": "embedding",
        "in": "embedding",
        "mean": "inner readout",
        "out": "readout",
        "spread": "inner readout",
    }


def test_filters_in_the_frequency_domain_are_vectors():
    def build(n, key):
        keys = jax.random.split(key, 3)
        params = {"embed": normal(keys[0], 17, n), "filter": normal(keys[1], 16, n), "head": normal(keys[2], n, 17)}

        def apply(params, tokens):
            x, length = params["embed"][tokens], tokens.shape[1]
            spectrum = jnp.fft.rfft(x, 16, axis=1) * jnp.fft.rfft(params["filter"], 16, axis=0)
            return jnp.fft.irfft(spectrum, 16, axis=1)[:, :length] @ params["head"]

        return params, apply

    assert roles(build, jnp.ones((2, 9), int)) == {"embed": "embedding", "filter": "embedding", "head": "readout"}


def test_messages_between_nodes_of_a_graph_pass_through_hidden_weights():
    def build(n, key):
        keys = jax.random.split(key, 4)
        shapes = {"in": (5, n), "message": (2 * n, n), "update": (2 * n, n), "out": (n, 1)}
        params = {name: normal(k, *shape) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}

        def apply(params, x, senders, receivers):
            h = x @ params["in"]
            for _ in range(2):
                pairs = jnp.concatenate([h[senders], h[receivers]], -1)
                messages = jax.nn.relu(pairs @ params["message"])
                heard = jax.ops.segment_sum(messages, receivers, h.shape[0])
                h = h + jax.nn.relu(jnp.concatenate([h, heard], -1) @ params["update"])
            return h.sum(0) @ params["out"]

        return params, apply

    found = roles(build, jnp.ones((6, 5)), jnp.array([0, 1, 2]), jnp.array([1, 2, 3]))
    assert found == {"in": "embedding", "message": "hidden", "out": "readout", "update": "hidden"}


def test_a_tied_embedding_behind_a_norm_that_starts_at_0_needs_a_model_that_scales_its_logits():
    def build(n, key):
        keys = jax.random.split(key, 2)
        params = {"embed": normal(keys[0], 17, n), "scale": jnp.zeros(n), "w": normal(keys[1], n, n)}

        def apply(params, tokens):
            x = params["embed"][tokens]
            x = x + jnp.tanh(norm(x) @ params["w"])
            return norm(x) * (1 + params["scale"]) @ params["embed"].T

        return params, apply

    with pytest.raises(ValueError, match=r"'embed' is embedding and readout at once.*scaled_logits=True"):
        roles(build, jnp.ones((2, 9), int))
    found = roles(build, jnp.ones((2, 9), int), scaled_logits=True)
    assert found == {"embed": "tied", "scale": "embedding", "w": "hidden"}
