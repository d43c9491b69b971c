"""The runs of this operator from the perspective of RPCs: find, read, create, request, and wait."""
