"""Kinds of work of an activity for which Perdure writes the container: scripts."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from perdure.api.common import SpecModel
from perdure.api.fields import atomic_list

MAX_SOURCE = 65_536
"""Maximum characters of the source of a script."""


class ScriptResult(StrEnum):
    """Where the result of a script comes from."""

    FILE = "File"
    """The file `$PERDURE_TERMINATION_LOG`, as for any container."""

    LAST_LINE = "LastLine"
    """The last line that the script prints to stdout."""

    OUTPUT = "Output"
    """Everything that the script prints to stdout."""


class Script(SpecModel):
    """A script, and the image with its interpreter.

    The script is the file `/perdure/script` in a container with that image.
    """

    model_config = ConfigDict(extra="allow")

    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Container image. All other fields of a Kubernetes container are allowed too: `env`, `resources`, `volumeMounts` and so on.
    `image`, `args`, the values of `env` and `source` can contain expressions, as in `container`."""

    command: Annotated[list[Annotated[str, Field(max_length=4096)]], atomic_list(32, min_items=1)] = Field(
        default_factory=lambda: ["sh"]
    )
    """The interpreter, such as `[python]`. It gets the file with the script, and then `args`. Default: `[sh]`."""

    source: Annotated[str, Field(min_length=1, max_length=MAX_SOURCE)]
    """The script. It reads its input from `$PERDURE_INPUT`. Write `$${` for a literal `${`."""

    result: ScriptResult = ScriptResult.FILE
    """Where the result comes from: File, LastLine or Output. Default: File. For LastLine and Output, the image needs `sh`, `tee`
    and `tail`; a result that the script writes to the file takes precedence."""
