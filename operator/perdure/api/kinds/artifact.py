"""Artifacts: files that an activity finds when it starts, and files that it leaves for other activities."""

from enum import StrEnum
from operator import not_
from typing import Annotated, Final

from pydantic import Field

from perdure.api.fields import Flag, ResourceName, map_list
from perdure.api.kinds.workspace import MountPath
from perdure.api.models import SpecModel
from perdure.api.rules import Rule, exactly_one_of

MAX_INPUTS = 20
"""Maximum number of input artifacts of one activity."""

MAX_OUTPUTS = 10
"""Maximum number of output artifacts of one activity: their description must fit into a termination message."""

DEFAULT_STORE: Final = "perdure-artifacts"
"""The Secret of the artifact store if an activity does not set one."""

ArtifactName = Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""The name of an artifact: a DNS label, because it is the name of a file."""

_ANY_INPUTS: Final = "(has(self.inputs) && size(self.inputs) > 0)"
_ANY_OUTPUTS: Final = "(has(self.outputs) && size(self.outputs) > 0)"
_Data = Annotated[str, Field(max_length=65_536)]
_Url = Annotated[str, Field(min_length=1, max_length=4096)]
_Hash = Annotated[str, Field(min_length=1, max_length=256)]


class Archive(StrEnum):
    """How files are packed."""

    NONE = "None"
    """No archive: a single file."""

    TAR = "Tar"
    """A tar archive, also compressed by gzip, bzip2 or xz."""


class ArtifactRetention(StrEnum):
    """How long output artifacts are kept."""

    DELETE_WITH_RUN = "DeleteWithRun"
    """As long as a run exists that needs them: the run itself, or one whose history refers to them."""

    KEEP = "Keep"
    """Until someone else deletes them, such as a lifecycle rule of the bucket."""


class HttpSource(SpecModel):
    """A file on an HTTP server."""

    url: _Url
    """An `http` or `https` URL; text with expressions, as in `container`."""

    sha256: _Hash | None = None
    """SHA-256 of the file, 64 hexadecimal digits. If the file has a different hash, the attempt fails. Text with expressions.
    Default: any file."""


class RawSource(SpecModel):
    """A file with inline content."""

    data: _Data
    """The content; text with expressions, as in `container`."""


class InputArtifact(SpecModel):
    """A file, or a folder from an archive, that exists when the container of the activity starts."""

    rules = (
        exactly_one_of("from_", "key", "http", "raw"),
        Rule(
            "`archive` must be used with `http` or `key`",
            "!has(self.archive) || self.archive == 'None' || has(self.http) || has(self.key)",
            lambda artifact: artifact.archive is Archive.NONE or (artifact.http or artifact.key) is not None,
        ),
        Rule(
            "`optional` must be used with `from`",
            "!has(self.optional) || !self.optional || has(self.from)",
            lambda artifact: not artifact.optional or artifact.from_ is not None,
        ),
    )

    name: ArtifactName
    """Name of the artifact. Lowercase letters, digits and `-`."""

    path: MountPath
    """Where the container of the activity finds the file or the folder; read-only."""

    from_: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """An output artifact of another activity: an expression as in `container`, such as `${input.report}`. A list of them becomes
    a folder with the files `0`, `1`, and so on. With `optional`, null means that there is none."""

    key: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The key of an object in the artifact store, below its `prefix`; text with expressions, as in `container`."""

    http: HttpSource | None = None
    """Download the file from an HTTP server."""

    raw: RawSource | None = None
    """Write a text to the file."""

    archive: Archive = Archive.NONE
    """None: `path` is the file. Tar: `path` is a folder with the files of the archive. Not for `from`: an output artifact is
    what it was. Default: None."""

    optional: Annotated[Flag, Field(exclude_if=not_)] = False
    """Whether the activity starts without the artifact if the value of `from` is null. Default: false."""


class OutputArtifact(SpecModel):
    """A file or a folder that the container of the activity leaves, stored for other activities."""

    name: ArtifactName
    """Name of the artifact. Lowercase letters, digits and `-`."""

    path: MountPath
    """Where the container of the activity writes it: a file, or a folder, which is stored as a tar archive compressed by gzip.
    The folder that contains it becomes an empty volume; directly below `/`, it must be a folder, which becomes one itself."""

    key: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The key of a copy in the artifact store, below its `prefix`, for those who do not get the artifact from a step; text with
    expressions, as in `container`. A later attempt or run replaces the copy, and Perdure never deletes it. Default: no copy."""

    optional: Annotated[Flag, Field(exclude_if=not_)] = False
    """Whether an attempt that does not write it succeeds. Default: false."""


class Artifacts(SpecModel):
    """Files that an activity finds when it starts, and files that it leaves for other activities."""

    rules = (
        Rule(
            "must have `inputs`, `outputs`, `largeResults`, or `archiveLogs`",
            f"{_ANY_INPUTS} || {_ANY_OUTPUTS} || has(self.largeResults) || has(self.archiveLogs)",
            lambda artifacts: bool(artifacts.inputs or artifacts.may_upload_data or artifacts.archive_logs is not None),
        ),
        Rule(
            "`retention` must be used with `outputs` or `largeResults`",
            f"!has(self.retention) || {_ANY_OUTPUTS} || has(self.largeResults)",
            lambda artifacts: artifacts.retention is None or artifacts.may_upload_data,
        ),
    )

    store: ResourceName = DEFAULT_STORE
    """The Secret of the artifact store, in the namespace of the run: an S3-compatible bucket, and what is needed to use it.
    Default: perdure-artifacts."""

    inputs: Annotated[list[InputArtifact], map_list("name", MAX_INPUTS)] = Field(default_factory=list, exclude_if=not_)
    """The files and folders that exist when the container of the activity starts; a container of Perdure prepares them.
    Default: none."""

    outputs: Annotated[list[OutputArtifact], map_list("name", MAX_OUTPUTS)] = Field(
        default_factory=list, exclude_if=not_
    )
    """The files and folders that are stored when the container of the activity has ended; a container of Perdure uploads them.
    `steps.<name>.artifacts` has them. Default: none."""

    large_results: Flag | None = None
    """Whether a result that is too large for a termination message is stored like an output; the result is then a reference to
    it. Scripts and `perdure.activity` choose by size; other programs write such a result to the file `$PERDURE_RESULT_FILE`.
    Default: false."""

    archive_logs: Flag | None = None
    """Whether the log of each attempt is stored when its container has ended, for `perdure logs`: the last 10 MiB, deleted with
    the run. The container must have a `command`, and its image `sh`, `tee`, `mkfifo`, and `sleep`. Default: false."""

    retention: ArtifactRetention | None = None
    """How long the outputs and large results are kept. DeleteWithRun: as long as the run exists, or another run whose history
    refers to them. Keep: Perdure never deletes them. Default: DeleteWithRun."""

    size_limit: Annotated[str, Field(min_length=1, max_length=32)] | None = None
    """How much all inputs together, and all outputs together, may take on the disk of the node, such as `2Gi`. Default: as much
    as the node allows."""

    @property
    def keeps_outputs(self) -> bool:
        """Whether Perdure never deletes the outputs and large results."""
        return self.retention is ArtifactRetention.KEEP

    @property
    def may_upload_data(self) -> bool:
        """Whether the activity has a setting about uploads of data, even if that turns them off."""
        return bool(self.outputs) or self.large_results is not None

    @property
    def deleted_with_run(self) -> bool:
        """Whether Perdure must delete uploads of the activity after the run."""
        return bool(self.archive_logs) or (self.uploads_data and not self.keeps_outputs)

    @property
    def uploads_data(self) -> bool:
        """Whether an attempt succeeds only when its uploads are stored; it does not wait for its log."""
        return bool(self.outputs or self.large_results)

    @property
    def uploads(self) -> bool:
        """Whether the pods of the activity have a sidecar that uploads to the artifact store."""
        return self.uploads_data or bool(self.archive_logs)
