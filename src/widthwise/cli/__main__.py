"""`python -m widthwise.cli`: the command without an installed script."""

from widthwise.cli import command

command()
