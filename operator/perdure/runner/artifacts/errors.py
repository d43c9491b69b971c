"""Errors about artifacts that cannot be prepared or stored."""


class ArtifactError(Exception):
    """An artifact cannot be prepared or stored; the message says which one and why."""

    def __init__(self, message: str, kind: str = "ArtifactFailed") -> None:
        """`kind`: the type of the failure."""
        super().__init__(message)
        self.kind = kind
