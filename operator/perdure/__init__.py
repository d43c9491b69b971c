"""Perdure: durable workflows with nothing but Kubernetes."""

import os

VERSION = "0.1.0"
"""The release that this source is, or will become. The only place where it is set: `make version VERSION=…` changes it, and its
copies in the chart, the manifests, and the documentation."""

RELEASED = False
"""Whether this is a released build: only `make release` sets this, in the artifacts."""

REVISION = os.environ.get("PERDURE_REVISION", "")
"""The commit of this build; empty in a checkout. `make release` writes it here, the Dockerfile sets the variable."""

__version__ = VERSION if RELEASED else f"{VERSION}-dev{f'.g{REVISION[:12]}' if REVISION else ''}"
"""The version of this build, as a semantic version: `0.1.0`, or `0.1.0-dev.g1a2b3c4d5e6f` for a development build."""
