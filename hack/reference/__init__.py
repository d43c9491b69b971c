"""The reference pages in docs/reference, written from the code that they describe.

`python hack/reference` writes them; with `--check` it writes nothing and fails if a page is stale.
"""
