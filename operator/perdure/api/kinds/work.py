"""Kinds of work of an activity for which Perdure writes the container: scripts, HTTP requests, Kubernetes objects."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from perdure.api.fields import Flag, Json, JsonObject, ResourceName, Template, atomic_list, set_list
from perdure.api.models import SpecModel
from perdure.api.times import PositiveDuration

MAX_SOURCE = 65_536
"""Maximum characters of the source of a script."""

HttpMethod = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
"""The method of a request."""


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


class Key(SpecModel):
    """A key of a Secret or ConfigMap in the namespace of the run."""

    name: ResourceName
    """Name of the Secret or ConfigMap."""

    key: Annotated[str, Field(min_length=1, max_length=253)]
    """The key in its data."""


class HttpHeader(SpecModel):
    """A header of a request: a text, then the value of a Secret."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the header."""

    value: Template = ""
    """Text with expressions. Default: none."""

    secret: Key | None = None
    """A key of a Secret, whose value follows `value`. Only the pod reads it. Default: none."""


class Http(SpecModel):
    """An HTTP request, which a pod of Perdure sends."""

    method: HttpMethod = "GET"
    """GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS. Default: GET."""

    url: Annotated[Template, Field(min_length=1)]
    """The URL, `http://…` or `https://…`; text with expressions."""

    query: Annotated[JsonObject, Field(max_length=100)] = Field(default_factory=dict)
    """Parameters that are encoded and appended to the URL, by name; values can contain expressions. Default: none."""

    headers: Annotated[list[HttpHeader], atomic_list(64)] = Field(default_factory=list)
    """Headers of the request. Default: `Content-Type: application/json` if the body is not a text, and `Idempotency-Key` for POST
    and PATCH, which is the same for all attempts."""

    body: Json = None
    """The body; any value, with expressions. A text is sent as it is, any other value as JSON. Default: none."""

    ca: Key | None = None
    """A key of a ConfigMap with the PEM certificates that verify the certificate of the server. Default: those of the image."""

    timeout: PositiveDuration = timedelta(seconds=30)
    """Maximum time of the request, such as `1m`. Default: 30s."""

    success_condition: Template | None = None
    """Whether the request succeeded: an expression that returns true or false, with `response` (`status`, `headers` and `body`),
    `input`, `run` and `attempt`. Default: the status is 200 to 299."""

    retry_statuses: Annotated[list[Annotated[int, Field(strict=True, ge=100, le=599)]], set_list(100)] = Field(
        default_factory=lambda: [408, 425, 429, 500, 502, 503, 504]
    )
    """Status codes of failures that retry policies may retry; other codes from 300 are not retried. If the response has
    `Retry-After`, the next attempt waits for that time. Default: 408, 425, 429, 500, 502, 503 and 504."""

    output: Json = None
    """Result of the activity; any value, with the expressions of `successCondition`. Default: an object with `status` and
    `body`."""

    resources: JsonObject | None = None
    """Resources of the container, as in a pod. Default: requests of 10m CPU and 64Mi memory."""


class ResourceAction(StrEnum):
    """What is done with a Kubernetes object."""

    CREATE = "Create"
    """Create the object. A repeated attempt finds the object that an earlier attempt created."""

    APPLY = "Apply"
    """Create or change the object by a server-side apply."""

    PATCH = "Patch"
    """Patch the object, which must exist."""

    DELETE = "Delete"
    """Delete the object, and wait until it does not exist."""

    GET = "Get"
    """Read the object."""


class PatchType(StrEnum):
    """The format of a patch."""

    MERGE = "Merge"
    """A JSON merge patch (RFC 7386)."""

    STRATEGIC = "Strategic"
    """A strategic merge patch of Kubernetes, which custom resources do not support."""

    JSON = "Json"
    """A JSON patch (RFC 6902): a list of operations."""


class KubernetesResource(SpecModel):
    """An action on a Kubernetes object, which a pod of Perdure performs with the permissions of a ServiceAccount."""

    action: ResourceAction
    """Create, Apply, Patch, Delete or Get."""

    manifest: JsonObject
    """The object; any value can contain expressions. Patch, Delete and Get use only `apiVersion`, `kind`, `metadata.name` and
    `metadata.namespace`. Create also accepts `metadata.generateName`. Default namespace: that of the run."""

    patch: Json = None
    """The patch of `action: Patch`; any value, with expressions."""

    patch_type: PatchType = PatchType.MERGE
    """The format of `patch`: Merge, Strategic or Json. Default: Merge."""

    owned: Flag = False
    """Whether the run owns the object that it creates or applies, so that both are deleted together. Default: false."""

    service_account_name: ResourceName
    """The ServiceAccount whose permissions apply, in the namespace of the run."""

    success_condition: Template | None = None
    """When the activity has succeeded: an expression that returns true or false, with `object` (as the API server returns it),
    `input`, `run` and `attempt`. Until then, it reads the object again and again; an expression that fails counts as false.
    Default: immediately."""

    failure_condition: Template | None = None
    """When the activity has failed: an expression as in `successCondition`. Default: never."""

    output: Json = None
    """Result of the activity; any value, with the expressions of `successCondition`. Default: an object with `apiVersion`,
    `kind`, `name`, `namespace` and `uid`."""

    resources: JsonObject | None = None
    """Resources of the container, as in a pod. Default: requests of 10m CPU and 64Mi memory."""
