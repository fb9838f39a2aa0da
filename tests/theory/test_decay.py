"""Weight decay: what rules remove, where they lead, and which of them agree."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widthwise.theory import (
    ADAFACTOR,
    ADAM,
    ALIGNED_UPDATES,
    ALIGNMENTS,
    COMPLETEP,
    COUPLED,
    DECAY_RULES,
    FULL,
    INDEPENDENT,
    INVERSE,
    MUON_FACTORS,
    MUP,
    NONE,
    NTK,
    PARAMETERIZATIONS,
    SGD,
    SQRT,
    SQRT_DEPTH,
    STANDARD,
    DecayRule,
    Equilibrium,
    Role,
    assess_depth,
    depth_equilibria,
    equilibria,
    read_decay_rule,
    solve,
)

HALF = Fraction(1, 2)
POSITIVE = st.fractions(min_value=0, max_value=2, max_denominator=4)


def hidden(family, rule: DecayRule, alignment=FULL, network=STANDARD, **how) -> Equilibrium:
    found = equilibria(solve(network, family, alignment), rule, **how)[1]
    assert found is not None
    return found


@pytest.mark.parametrize("family", [SGD, ADAM])
@pytest.mark.parametrize("network", PARAMETERIZATIONS.values(), ids=lambda network: network.name)
@pytest.mark.parametrize("alignment", ALIGNMENTS.values(), ids=lambda alignment: alignment.name)
def test_only_a_constant_part_keeps_time_scale_and_effective_rate(family, network, alignment):
    """The effective rate depends on what a step removes and on nothing else, in every layer."""
    case = solve(network, family, alignment)
    for rule in DECAY_RULES.values():
        for layer in equilibria(case, rule):
            if layer is not None:
                assert layer.effective_rate == layer.removed / 2
    assert all(layer and layer.removed == layer.effective_rate == 0 for layer in equilibria(case, INDEPENDENT))


@pytest.mark.parametrize("network", PARAMETERIZATIONS.values(), ids=lambda network: network.name)
@pytest.mark.parametrize("alignment", [FULL, NONE], ids=lambda alignment: alignment.name)
@pytest.mark.parametrize("persistence", [HALF, ALIGNED_UPDATES])
def test_with_a_constant_part_outputs_are_constant_if_weights_are_as_aligned_as_their_updates(
    network, alignment, persistence
):
    for layer in equilibria(solve(network, ADAM, alignment), INDEPENDENT, persistence=persistence):
        assert layer
        assert layer.output == 0


def test_each_rule_keeps_outputs_constant_at_an_alignment_of_its_own():
    """The rules contradict each other because they assume different alignments of trained weights."""
    found = {name: hidden(ADAM, rule, network=MUP).alignment for name, rule in DECAY_RULES.items()}
    assert found == {"independent": 1, "sqrt": Fraction(3, 4), "coupled": HALF, "inverse": HALF}


def test_one_over_n_keeps_the_size_of_hidden_weights_under_adam():
    assert hidden(ADAM, INVERSE).since_init == hidden(ADAM, COUPLED).since_init == 0
    assert hidden(ADAM, INDEPENDENT).since_init == HALF  # they shrink by n^-1/2
    assert hidden(ADAM, INDEPENDENT, alignment=NONE).since_init == 0


@pytest.mark.parametrize("alignment", [FULL, NONE], ids=lambda alignment: alignment.name)
@pytest.mark.parametrize("persistence", [HALF, ALIGNED_UPDATES])
@pytest.mark.parametrize("muon", MUON_FACTORS.values(), ids=lambda muon: muon.name)
def test_with_muon_a_constant_part_keeps_everything_in_hidden_layers(alignment, persistence, muon):
    found = hidden(muon, INDEPENDENT, alignment=alignment, persistence=persistence)
    assert found.removed == found.effective_rate == found.since_init == found.output == 0


def test_coupled_and_one_over_n_remove_the_same_where_the_rate_is_one_over_n():
    case = solve(STANDARD, ADAM, FULL)
    removed = [[layer and layer.removed for layer in equilibria(case, rule)] for rule in (COUPLED, INVERSE)]
    assert removed == [[0, 1, 1], [1, 1, 1]]


def test_what_coupled_rules_remove_depends_on_how_weights_are_stored():
    """The same network, moved: independent rules remove the same, the others do not."""
    moved = {
        rule.name: [hidden(ADAM, rule, network=x).removed for x in (STANDARD, NTK)] for rule in DECAY_RULES.values()
    }
    assert moved == {"independent": [0, 0], "coupled": [1, HALF], "sqrt": [HALF, 0], "inverse": [1, 1]}


@given(c=POSITIVE)
def test_dividing_a_coupled_decay_by_the_factor_of_the_rate_makes_it_independent(c: Fraction):
    """Decay in proportion to 1 / factor, as in mup, is another way to write independent decay."""
    divided = DecayRule(name="divided", title="", coupled=True, embedding=c, hidden=c, readout=c)
    for role in Role:
        assert divided.removed(role, c) == INDEPENDENT.removed(role, c) == 0


def test_parameter_scaling_has_no_equilibrium():
    found = hidden(ADAFACTOR, INDEPENDENT)
    assert found.size is found.since_init is found.output is None
    rates = solve(STANDARD, ADAFACTOR, FULL).rates
    assert rates is not None
    assert found.effective_rate == rates[1]  # decay has no part in it


def test_the_square_root_rule_leaves_vector_like_layers_alone():
    embedding, matrix, readout = equilibria(solve(MUP, ADAM, FULL), SQRT)
    assert embedding is readout is None
    assert matrix
    assert matrix.removed == HALF  # √n · 1/n


def test_a_case_that_is_unstable_at_initialization_has_no_equilibrium():
    network = PARAMETERIZATIONS["standard"].of(embedding=(0, 0), hidden=(0, 0), readout=(0, 0), name="large")
    with pytest.raises(ValueError, match="'large' is unstable at initialization"):
        equilibria(solve(network, ADAM, FULL), INDEPENDENT)


@pytest.mark.parametrize("rule", DECAY_RULES.values(), ids=lambda rule: rule.name)
@pytest.mark.parametrize("family", [ADAM, *MUON_FACTORS.values()], ids=lambda family: family.name)
def test_under_completep_depth_does_not_change_decay(family, rule):
    """Rates inside blocks do not change, so neither do rules that follow them. SGD's rates grow."""
    for found in depth_equilibria(assess_depth(COMPLETEP, family), rule):
        if found is not None:
            assert found.removed == found.effective_rate == found.since_init == found.output == 0


def test_sgd_under_completep_must_not_have_coupled_decay():
    matrices, vectors = depth_equilibria(assess_depth(COMPLETEP, SGD), COUPLED)
    assert matrices == vectors
    assert matrices
    assert matrices.removed == -1  # a step removes L times as much


@pytest.mark.parametrize("persistence", [HALF, ALIGNED_UPDATES])
def test_under_one_over_root_l_a_constant_part_makes_settled_blocks_lose_their_size(persistence):
    case = assess_depth(SQRT_DEPTH, ADAM)
    independent, _ = depth_equilibria(case, INDEPENDENT, persistence=persistence)
    coupled, _ = depth_equilibria(case, COUPLED, persistence=persistence)
    assert independent
    assert coupled
    assert (independent.since_init, independent.effective_rate, independent.output) == (HALF, 0, 0)
    assert coupled.since_init == (1 - persistence) * HALF
    assert coupled.effective_rate == persistence * HALF


def test_with_parameter_scaling_the_effective_rate_in_depth_is_that_of_the_update():
    for rule in (INDEPENDENT, COUPLED):
        matrices, _ = depth_equilibria(assess_depth(SQRT_DEPTH, ADAFACTOR), rule)
        assert matrices
        assert (matrices.size, matrices.effective_rate) == (None, HALF)


def test_the_square_root_rule_over_width_leaves_vectors_inside_blocks_alone():
    matrices, vectors = depth_equilibria(assess_depth(SQRT_DEPTH, ADAM), SQRT)
    assert vectors is None
    assert matrices
    assert matrices.removed == HALF  # L^-1/2 of the rate; √n concerns width


def test_unknown_rules_are_refused():
    with pytest.raises(ValueError, match="decay_rule is 'mup': expected one of independent, coupled, sqrt, inverse"):
        read_decay_rule("mup")
    assert read_decay_rule("sqrt") is read_decay_rule(SQRT) is SQRT


@pytest.mark.parametrize(("persistence", "power"), [(HALF, 0.5), (ALIGNED_UPDATES, 1.0)])
def test_weights_settle_where_the_derivation_says(persistence: Fraction, power: float):
    """A weight that loses a part of itself and gains an update at every step, for parts n^-1 of growing n."""
    rng = np.random.default_rng(0)
    parts, sizes, rates = [0.1, 0.025, 0.00625], [], []
    for part in parts:
        weight = np.ones(4000)
        for _ in range(int(6 / part)):
            update = rng.standard_normal(weight.shape) if persistence == HALF else np.ones_like(weight)
            weight = (1 - part) * weight + update
        sizes.append(np.sqrt(np.mean(weight**2)))
        rates.append(1 / sizes[-1])
        expected = (2 * part) ** -0.5 if persistence == HALF else 1 / part
        assert sizes[-1] == pytest.approx(expected, rel=0.06)
    n = [1 / part for part in parts]
    assert np.polyfit(np.log(n), np.log(sizes), 1)[0] == pytest.approx(power, abs=0.03)
    assert np.polyfit(np.log(n), np.log(rates), 1)[0] == pytest.approx(-power, abs=0.03)
