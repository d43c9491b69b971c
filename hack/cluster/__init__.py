"""A real kind cluster on any Linux machine, with or without an image registry.

Run it as ``python3 hack/cluster <verb>``; ``python3 hack/cluster --help`` lists the
verbs. If a registry is reachable, it uses the stock ``kindest/node`` image. Otherwise, it
builds a node image from the Go modules in ``hack/node-image`` and Debian packages, once,
and caches it. It only needs Python's standard library.
"""
