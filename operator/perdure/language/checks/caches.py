"""Warns about activities whose cached results may not be what a run expects."""

from collections.abc import Iterator

from perdure.api.kinds.workflow import Activity
from perdure.language.cel import compile_source
from perdure.language.containers import NAMES, places
from perdure.language.expression_text import ExpressionError
from perdure.language.expressions import compile_template
from perdure.language.program import Finding, Severity


def of_cache(path: str, activity: Activity) -> Iterator[Finding]:
    """Warn about the cache of an activity.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.
    """
    if activity.cache is None:
        return
    readers = [where for where, text in places(activity) if _reads_input(text)]
    if readers and "cache.key" not in readers:
        message = f"the result is the same for every input, but `{readers[0]}` reads `input`; use it in the key, too"
        yield Finding(f"{path}.cache.key", message, Severity.WARNING, local=True)
    if any(not mount.read_only for mount in activity.workspaces):
        message = (
            "an activity that uses a cached result does not write files to its workspaces; mount them `readOnly`, or pass files "
            "as `artifacts`"
        )
        yield Finding(f"{path}.cache", message, Severity.WARNING, local=True)


def _reads_input(text: str) -> bool:
    try:
        sources = compile_template(text, names=NAMES).sources
    except ExpressionError:
        return True  # it is an error anyway
    return any("input" in compile_source(source, NAMES).names for source in sources)
