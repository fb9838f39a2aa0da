"""The command line: one thin file for each subcommand."""

from widthwise.cli.main import command as command
from widthwise.cli.main import main as main
