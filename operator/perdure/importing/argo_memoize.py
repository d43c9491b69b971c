"""Converts the `memoize` of Argo's templates to the caches of activities."""

from typing import Final

from perdure.importing.argo_pods import Containers
from perdure.importing.argo_retry import timeout
from perdure.importing.field_reader import Fields, Object

_LONGEST: Final = "30d"
"""Maximum age of a result whose template has none."""


def cache(template: Fields, containers: Containers) -> Object:
    """Return the field `cache` of an activity, if its template has a `memoize`.

    Args:
        template: The template; takes `memoize`.
        containers: Converts the tags of the template.
    """
    if "memoize" not in template:
        return {}
    memoize = template.part("memoize")
    key = memoize.text("key")
    max_age = timeout(memoize, "maxAge")
    if max_age is None:
        memoize.note("maxAge", f"a result is used for at most {_LONGEST}; set `maxAge` of the activity's `cache`")
    if memoize.take("cache"):
        memoize.note("cache", "results are CachedResults, and only activities with the same name and work share them")
    memoize.done({})
    if key is None:
        memoize.gap("key", "must be set")
        return {}
    return {"cache": {"key": containers.text(key, memoize.at("key")), "maxAge": max_age or _LONGEST}}
