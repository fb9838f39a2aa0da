"""Examples in docstrings stand between paragraphs, without a heading. In the reference they are sessions."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Sessions(griffe.Extension):
    """Mark the examples of every docstring as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Mark those of one object."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
