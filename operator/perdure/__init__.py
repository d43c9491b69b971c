"""Perdure: durable workflows with nothing but Kubernetes."""

import os

VERSION = "0.2.0"
"""The release that this source is, or will become. The only place where it is set: `make version VERSION=…` changes it, and its
copy in the chart."""

IMAGE = "localhost/perdure:dev"
"""The image that `make image` builds. Examples use it, and an operator that the chart has not configured adds it to pods."""

RELEASED = False
"""Whether this is a released build: only `make release` sets this, in the artifacts."""

REVISION = os.environ.get("PERDURE_REVISION", "")
"""The commit of this build; empty in a checkout. `make release` writes it here, the Dockerfile sets the variable."""

__version__ = VERSION if RELEASED else f"{VERSION}-dev{f'.g{REVISION[:12]}' if REVISION else ''}"
"""The version of this build, as a semantic version: `0.1.0`, or `0.1.0-dev.g1a2b3c4d5e6f` for a development build."""
