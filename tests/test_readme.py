"""What README shows is what a user sees."""

import re
import shlex
from pathlib import Path

import pytest

from widthwise.cli import main

README = Path(__file__).parents[1] / "README.md"
SHOWN = re.findall(r"```console\n\$ widthwise (.*)\n((?:.*\n)*?)```", README.read_text())


def test_readme_shows_commands():
    assert len(SHOWN) >= 3


@pytest.mark.parametrize(("arguments", "output"), SHOWN)
def test_a_command_in_readme_prints_what_readme_shows(arguments: str, output: str, capsys):
    assert main(shlex.split(arguments)) == 0
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == output.splitlines()
