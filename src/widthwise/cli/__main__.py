"""`python -m widthwise.cli`: the command without an installed script."""

import sys

from widthwise.cli import main

sys.exit(main())
