"""The cache of an activity: which earlier results it can use."""

from typing import Annotated, Final

from pydantic import Field

from perdure.api.fields import Template
from perdure.api.models import SpecModel
from perdure.api.times import PositiveDuration

MAX_CACHE_KEY: Final = 1_024
"""Maximum length of the value of `key`."""

MAX_CACHED_BYTES: Final = 65_536
"""Maximum size of a cached result with the references to its artifacts, as JSON."""


class ResultCache(SpecModel):
    """When an activity uses an earlier result instead of running again."""

    key: Annotated[Template, Field(min_length=1)]
    """What the result depends on: text with expressions as in `container`, such as `${input.version}`. A value that is not a
    text becomes JSON. If it is null or empty, the result is neither looked up nor stored. At most 1,024 characters."""

    max_age: PositiveDuration
    """Maximum age of an earlier result, such as `1h`. The operator deletes older ones."""
