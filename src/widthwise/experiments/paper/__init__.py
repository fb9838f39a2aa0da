"""The ten experiments of the paper, one file each, and the numbers that it reports."""
