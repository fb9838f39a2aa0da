"""What is judged is what is measured."""

from widthwise.coordinates import FIELDS
from widthwise.measure import alignment


def test_the_fields_are_those_that_are_measured_in_jax():
    assert alignment.FIELDS == FIELDS
