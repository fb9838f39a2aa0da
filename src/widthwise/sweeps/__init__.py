"""Sweeps of our own models: settings, what computes their runs, and the tuning of constants."""
