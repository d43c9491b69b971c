"""Artifacts: files that an activity finds when it starts."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from perdure.api.common import SpecModel
from perdure.api.field_shapes import map_list
from perdure.api.rules import Rule, exactly_one_of
from perdure.api.workspace import MountPath

MAX_ARTIFACTS = 20
"""Maximum number of artifacts of one activity."""

ArtifactName = Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""The name of an artifact: a DNS label, because it is the name of a file."""

_Data = Annotated[str, Field(max_length=65_536)]
_Url = Annotated[str, Field(min_length=1, max_length=4096)]
_Hash = Annotated[str, Field(min_length=1, max_length=256)]


class Archive(StrEnum):
    """How files are packed."""

    NONE = "None"
    """Not at all: one file."""

    TAR = "Tar"
    """A tar archive, also compressed by gzip, bzip2 or xz."""


class HttpSource(SpecModel):
    """A file on an HTTP server."""

    url: _Url
    """An `http` or `https` URL; text with expressions, as in `container`."""

    sha256: _Hash | None = None
    """SHA-256 of the file, 64 hexadecimal digits; a file with another one fails the attempt. Text with expressions.
    Default: any file."""


class RawSource(SpecModel):
    """A file with the text that is written here."""

    data: _Data
    """The content; text with expressions, as in `container`."""


class InputArtifact(SpecModel):
    """A file, or a folder from an archive, that exists when the container of the activity starts."""

    rules = (
        exactly_one_of("http", "raw"),
        Rule(
            "`archive` must be used with `http`",
            "!has(self.archive) || self.archive == 'None' || has(self.http)",
            lambda artifact: artifact.archive is Archive.NONE or artifact.http is not None,
        ),
    )

    name: ArtifactName
    """Name of the artifact. Lowercase letters, digits and `-`."""

    path: MountPath
    """Where the container of the activity finds the file or the folder; read-only."""

    http: HttpSource | None = None
    """Download the file from an HTTP server."""

    raw: RawSource | None = None
    """Write the file from a text."""

    archive: Archive = Archive.NONE
    """None: `path` is the file. Tar: `path` is a folder with the files of the archive. Default: None."""


class Artifacts(SpecModel):
    """Files that an activity finds when it starts."""

    inputs: Annotated[list[InputArtifact], map_list("name", MAX_ARTIFACTS, min_items=1)]
    """The files and folders; a container of Perdure prepares them before the container of the activity starts."""

    size_limit: Annotated[str, Field(min_length=1, max_length=32)] | None = None
    """How much all of them may take on the disk of the node, such as `2Gi`. Default: as much as the node allows."""
