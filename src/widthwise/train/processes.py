"""What several processes that train one model decide together.

They meet at barriers: in every step, and whenever a checkpoint is written. Each has its own clock and receives its own
signals, so a process that decided alone would enter a barrier where the others are not.
"""

import jax
import numpy as np
from jax.experimental import multihost_utils


def agreed(*wishes: bool) -> tuple[bool, ...]:
    """Return which wishes any process has; all processes must call this at the same point."""
    if jax.process_count() == 1:
        return wishes
    everyone = multihost_utils.process_allgather(np.array(wishes))
    return tuple(bool(wish) for wish in np.any(everyone, axis=0))
