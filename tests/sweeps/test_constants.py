"""Constants by name."""

from pathlib import Path

import pytest

from widthwise.parameterize import Constants
from widthwise.study import Study
from widthwise.sweeps.constants import keep, look_up


def test_adam_atan2_uses_the_constants_of_adam_unless_it_has_its_own(tmp_path: Path):
    with Study.open(tmp_path) as study:
        keep(study, "mine", "adam", "mup", Constants(embedding=3.0), {})
        assert look_up(study, "mine", "adam_atan2", "mup") == Constants(embedding=3.0)
        keep(study, "mine", "adam_atan2", "mup", Constants(embedding=5.0), {})
        assert look_up(study, "mine", "adam_atan2", "mup") == Constants(embedding=5.0)
        assert look_up(study, "mine", "adam", "mup") == Constants(embedding=3.0)


@pytest.mark.parametrize("optimizer", ["adam_ps", "sgd"])
def test_no_other_optimizer_uses_those_of_adam(tmp_path: Path, optimizer: str):
    with Study.open(tmp_path) as study:
        keep(study, "mine", "adam", "mup", Constants(embedding=3.0), {})
        with pytest.raises(ValueError, match=f"there are no constants 'mine' for mup with {optimizer}"):
            look_up(study, "mine", optimizer, "mup")
