"""Random cases of the theory for property tests."""

from fractions import Fraction

from hypothesis import strategies as st

from widthwise.theory import (
    ALL_FAMILIES,
    FAMILIES,
    Alignment,
    Family,
    Layer,
    LayerAlignment,
    MixedFamily,
    OptimizerFamily,
    Parameterization,
)

Case = tuple[Parameterization, Family, Alignment]

exponents = st.fractions(min_value=-2, max_value=2, max_denominator=12)
unit = st.fractions(min_value=0, max_value=1, max_denominator=12)
amounts = st.fractions(min_value=Fraction(1, 100), max_value=3, max_denominator=100)
layer_alignments = st.builds(LayerAlignment, alpha=unit, omega=unit, u=unit)
of_one_layer = st.sampled_from(list(FAMILIES.values())) | st.builds(
    OptimizerFamily,
    name=st.just("random"),
    gradient_power=st.fractions(min_value=0, max_value=2, max_denominator=4),
    parameter_power=st.integers(0, 1),
)
families = (
    of_one_layer
    | st.sampled_from(list(ALL_FAMILIES.values()))
    | st.builds(MixedFamily, name=st.just("random"), embedding=of_one_layer, hidden=of_one_layer, readout=of_one_layer)
)


@st.composite
def parameterizations(draw: st.DrawFn, hidden_layers: int) -> Parameterization:
    """Draw a and b that are stable at initialization."""

    def layer(total: Fraction) -> Layer:
        a = draw(exponents)
        return Layer(a, total - a)

    surplus = draw(st.just(Fraction(0)) | st.fractions(min_value=0, max_value=2, max_denominator=12))
    return Parameterization(
        name="random",
        embedding=layer(Fraction(0)),
        hidden=tuple(layer(Fraction(1, 2)) for _ in range(hidden_layers)),
        readout=layer(Fraction(1, 2) + surplus),
    )


@st.composite
def alignments(draw: st.DrawFn, hidden_layers: int) -> Alignment:
    hidden = [draw(layer_alignments) for _ in range(hidden_layers)]
    return Alignment(hidden=tuple(hidden), readout=draw(layer_alignments), name="random")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    hidden_layers = draw(st.integers(0, 5))
    return draw(parameterizations(hidden_layers)), draw(families), draw(alignments(hidden_layers))
