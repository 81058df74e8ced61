"""Where the examples' requests go to: a file that all functions of this deployment share."""

from __future__ import annotations

import os

from examples.outside import connect

if "EXAMPLES_OUTSIDE" in os.environ:
    connect(os.environ["EXAMPLES_OUTSIDE"])
