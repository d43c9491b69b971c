"""A real kind cluster on any Linux machine, with or without an image registry.

Run it as ``python3 hack/cluster <verb>``; ``python3 hack/cluster --help`` lists the
verbs. Where a registry can be reached, the stock ``kindest/node`` image is used; where
not, a node image is built from the Go modules in ``hack/node-image`` and from Debian
packages, once, and cached. Nothing but Python's standard library is needed.
"""
