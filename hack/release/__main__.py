"""Entry point of ``python hack/release``."""

import sys
from pathlib import Path

# Python adds this folder to the path when it runs it; the package is one level up.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from release.cli import main  # noqa: E402  (the path must be set first)

sys.exit(main())
