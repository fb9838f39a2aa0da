"""Experiments of our own, on what the paper leaves open: what each trains at every scale, and what its runs say."""
