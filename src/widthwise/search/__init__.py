"""Which runs to train next: learning rates at every width, and what narrows the exponent of the optimal one."""
