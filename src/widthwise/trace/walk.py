"""Follow the parameters of a model through its traced forward pass, to where they act.

A trace (a jaxpr) lists every operation of a model, whatever framework it was written in. Walking through it shows which
axis of a weight is summed over, so no convention has to be known. Control flow (`scan`, `while`, `cond`, `remat`,
`jit`, `shard_map`) is entered. The walk needs shapes only, so a model of any size can be traced.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Literal as Constant

from widthwise.scaling.found import Found, Key, Value, note
from widthwise.scaling.operations import Operation
from widthwise.scaling.streams import CARRIED, NO_FLOW, Flow, Stream
from widthwise.scaling.views import Piece

BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""The parameters of operations that hold a traced function to be called with the same arguments."""


def walk(jaxpr: Any, weights: Sequence[Value]) -> Found:
    """Walk through a trace; return how the parameters are used.

    Args:
        jaxpr: The trace.
        weights: What is known of its first arguments. The others are examples.
    """
    found = Found()
    found.spend(_walk(jaxpr, arguments_of(jaxpr, weights), found, (), closed_over(jaxpr, weights)))
    return found


def arguments_of(jaxpr: Any, weights: Sequence[Value]) -> list[Value]:
    """Return what is known of the arguments of a trace: parameters, then examples."""
    return [*weights, *[Value(dynamic=True)] * (len(jaxpr.invars) - len(weights))]


def closed_over(jaxpr: Any, weights: Sequence[Value]) -> dict[Any, Value]:
    """Return what is known of the arrays that a traced function closes over.

    Token ids are examples also if they are not arguments, and so is everything if there are no arguments.
    """
    alone = len(jaxpr.invars) == len(weights)
    return {var: Value(dynamic=alone or jnp.issubdtype(var.aval.dtype, jnp.integer)) for var in jaxpr.constvars}


def body_of(operation: Any) -> Any | None:
    """Return the traced function that an operation calls, if it calls one with its own arguments."""
    if operation.primitive.name in ("scan", "while", "cond", "pallas_call"):
        return None
    body = next((x for name in BODIES if (x := operation.params.get(name)) is not None), None)
    body = getattr(body, "jaxpr", body)
    return body if body is not None and len(body.invars) == len(operation.invars) else None


def _walk(
    jaxpr: Any, values: Sequence[Value], found: Found, place: Key, closed: Mapping[Any, Value] = MappingProxyType({})
) -> list[Value]:
    known: dict[Any, Value] = {**closed, **dict(zip(jaxpr.invars, values, strict=True))}
    consumers = Counter(
        atom for operation in jaxpr.eqns for atom in operation.invars if not isinstance(atom, Constant)
    ) + Counter(atom for atom in jaxpr.outvars if not isinstance(atom, Constant))

    def value(atom: Any) -> Value:
        if isinstance(atom, Constant):
            return Value()
        got = known.get(atom, Value())
        return got.shared() if consumers[atom] > 1 else got

    for index, operation in enumerate(jaxpr.eqns):
        given, key = [value(atom) for atom in operation.invars], (*place, index)
        known.update(zip(operation.outvars, follow(operation, given, found, key), strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def follow(operation: Any, given: list[Value], found: Found, key: Key) -> list[Value]:
    """Note what an operation does with parameters; return what is known of its results."""
    results = _nested(operation, given, found, key)
    return Operation(operation, given, found, key).results() if results is None else results


def _nested(operation: Any, given: list[Value], found: Found, key: Key) -> list[Value] | None:
    """Walk into an operation that contains others; None if it does not."""
    if operation.primitive.name in ("scan", "while", "cond"):
        return found.spend(_controlled(operation, found.spend(given), found, key))
    body = body_of(operation)
    if body is None:
        return None
    inside = [
        value if tuple(var.aval.shape) == tuple(atom.aval.shape) else value.resized(var.aval.shape)
        for value, var, atom in zip(given, body.invars, operation.invars, strict=True)
    ]
    results = _walk(body, inside, found, key)
    return [
        result.resized(var.aval.shape) if len(var.aval.shape) == len(atom.aval.shape) else replace(result, views=())
        for result, var, atom in zip(results, operation.outvars, body.outvars, strict=True)
    ]


def _controlled(operation: Any, given: list[Value], found: Found, key: Key) -> list[Value]:
    params = operation.params
    if operation.primitive.name == "scan":
        return _scan(operation, given, found, key)
    if operation.primitive.name == "while":
        conditions, constants = params["cond_nconsts"], params["body_nconsts"]
        body = params["body_jaxpr"].jaxpr
        fixed, carry = given[conditions : conditions + constants], given[conditions + constants :]
        inside = _carried(lambda carried: _walk(body, [*fixed, *carried], Found(), key), carry, found, key)
        return _after(_walk(body, [*fixed, *inside], found, key), given, carry, found, key)
    results = [_walk(branch.jaxpr, given[1:], found, (*key, i)) for i, branch in enumerate(params["branches"])]
    for options in results:
        found.spend(options)
    return [_joined(options) for options in zip(*results, strict=True)]


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many arguments of a scan stay the same, and how many it carries along.

    >>> import jax
    >>> scan = jax.make_jaxpr(lambda x, xs: jax.lax.scan(lambda c, y: (c + x * y, c), x, xs))(1.0, jnp.ones(3))
    >>> scan_counts(scan.jaxpr.eqns[0].params)
    (1, 1)
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = params["ft_in"].unpack()  # from JAX 0.12 on
    return len(constants), len(carried)


def _scan(operation: Any, given: list[Value], found: Found, key: Key) -> list[Value]:
    constants, carries = scan_counts(operation.params)
    results = _walk(operation.params["jaxpr"].jaxpr, in_scan(operation, given, found, key), found, key)
    first = given[constants : constants + carries]
    results = _after(results, given, first, found, key, times=operation.params["length"])
    length = (Piece(None, operation.params["length"]),)
    stacked = [value.moved(lambda view: replace(view, parts=(length, *view.parts))) for value in results[carries:]]
    return [*results[:carries], *stacked]


def in_scan(operation: Any, given: list[Value], found: Found, key: Key) -> list[Value]:
    """Return what is known of the arguments of a scan's body, in every iteration."""
    params = operation.params
    constants, carries = scan_counts(params)
    fixed, first = given[:constants], given[constants : constants + carries]
    each = [value.moved(lambda view: view.one_of([0], scanned=True)) for value in given[constants + carries :]]

    def step(carried: list[Value]) -> list[Value]:
        return _walk(params["jaxpr"].jaxpr, [*fixed, *carried, *each], Found(), key)[:carries]

    return [*fixed, *_carried(step, first, found, key), *each]


def _carried(step: Callable[[list[Value]], list[Value]], first: list[Value], found: Found, key: Key) -> list[Value]:
    """Return what is known of the state that a loop carries, in every iteration."""
    carry = _streams(first, key)
    while True:
        after = _streams([_joined(pair) for pair in zip(carry, step(carry), strict=True)], key)
        if after == carry:
            break
        carry = after
    for before, value in zip(first, carry, strict=True):
        if before.is_weight and not value.views:  # a first state that is learned
            note(found, key, "elementwise", before.views)
    return carry


def _streams(carry: Sequence[Value], key: Key) -> list[Value]:
    """Return the state that a loop carries as streams of its own, to see which of them it leaves as they are."""
    flows = [Flow((*key, -1 - index), acted=frozenset({CARRIED})) for index in range(len(carry))]
    return [replace(value, flow=flow) for value, flow in zip(carry, flows, strict=True)]


def _after(
    results: list[Value], given: Sequence[Value], first: Sequence[Value], found: Found, key: Key, *, times: int = 1
) -> list[Value]:
    """Return what is known of the results of a loop outside of it: they depend on everything that entered it."""
    entered = NO_FLOW
    for value in given:
        entered = entered.joined(value.flow)
    flows = [entered.joined(value.flow) for value in results]
    flows = [replace(flow, root=(*key, index), acted=flow.acted - {CARRIED}) for index, flow in enumerate(flows)]
    for index, (before, value) in enumerate(zip(first, results, strict=False)):
        if value.flow.root == (stream := (*key, -1 - index)):
            kept = before.flow
            found.loops[stream] = times, kept.root
            sums, inside = kept.sums + value.flow.sums, found.streams.get(stream, Stream()).inside
            direct = kept.direct if kept.root is not None else kept.direct | inside
            flows[index] = replace(flows[index], root=kept.root, depends=kept.depends, direct=direct, sums=sums)
            if kept.root is not None:
                outer = found.streams.get(kept.root, Stream(kept.depends))
                found.streams[kept.root] = outer.with_more(inside, last=key)
    return [replace(value, flow=flow) for value, flow in zip(results, flows, strict=True)]


def _joined(options: Sequence[Value]) -> Value:
    first, *rest = options
    for other in rest:
        first = first.joined(other)
    return first
