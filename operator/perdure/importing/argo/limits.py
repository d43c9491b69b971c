"""Converts the `synchronization` of Argo's workflows and templates to WorkflowLimits."""

from typing import Any

from perdure.importing.argo.library import Library
from perdure.importing.argo.scope import is_tag
from perdure.importing.expressions import TAG, Resolve, UntranslatableError, template
from perdure.importing.reader import Fields, Object
from perdure.importing.writer import valid_name


def limits(spec: Fields, library: Library, resolve: Resolve) -> tuple[list[Object], list[tuple[str, Object]]]:
    """Take the locks of a workflow or a template.

    Args:
        spec: The spec; takes `synchronization`.
        library: The ConfigMaps of the files, with the sizes of semaphores.
        resolve: Translates references in names, which become keys.

    Returns:
        The `limits` of the definition or the activity, and the names and specs of the WorkflowLimits.
    """
    synchronization = spec.part("synchronization")
    mutexes = [
        *synchronization.parts("mutexes"),
        *([synchronization.part("mutex")] if "mutex" in synchronization else []),
    ]
    semaphores = [
        *synchronization.parts("semaphores"),
        *([synchronization.part("semaphore")] if "semaphore" in synchronization else []),
    ]
    taken: dict[str, Object] = {}
    limit_specs: list[tuple[str, Object]] = []
    for each in mutexes:
        use = _use(each, each.text("name") or "mutex", resolve, library)
        _take(taken, use, each)
        limit_specs.append((use["name"], {"capacity": 1}))
        _scope(each)
    for each in semaphores:
        reference = each.take("configMapKeyRef") or each.take("database") or {}
        use = _use(each, str(reference.get("key") or reference.get("name")), resolve, library)
        _take(taken, use, each)
        limit_specs.append((use["name"], {"capacity": _capacity(each, reference, library)}))
        _scope(each)
    return list(taken.values()), limit_specs


def _take(taken: dict[str, Object], use: Object, lock: Fields) -> None:
    """Add the use of a limit, unless another lock has become the same limit, which can be taken once."""
    if taken.setdefault(use["name"], use) is not use:
        lock.gap("", f"the WorkflowLimit `{use['name']}` is already taken for another lock; rename one of them")


def _use(lock: Fields, name: str, resolve: Resolve, library: Library) -> Object:
    """Return the use of the limit for a lock. The tags of its name become the key: Argo has one lock for each resulting name."""
    constant = TAG.sub("", name)
    limit = valid_name(constant).lower().replace("_", "-").strip("-") or "mutex"
    other = library.locks.setdefault(limit, constant)
    if other != constant:
        lock.gap("", f"becomes the WorkflowLimit `{limit}`, as the lock `{other}` does; rename one of them")
    if not TAG.search(name):
        return {"name": limit}
    try:
        return {"name": limit, "key": template(name, resolve, is_tag)}
    except UntranslatableError as error:
        lock.gap("name", str(error))
        return {"name": limit}


def _scope(lock: Fields) -> None:
    if lock.take("database"):
        lock.note("database", "a WorkflowLimit counts the runs of one namespace of one cluster")
    if lock.take("namespace"):
        lock.note("namespace", "a WorkflowLimit counts the runs of its own namespace")
    lock.done({})


def _capacity(semaphore: Fields, reference: Any, library: Library) -> int:
    found = str(library.entry(reference) or "")
    if found.isdecimal():
        return int(found)
    semaphore.note("", "the size of the semaphore is in none of the files: set `capacity` of the WorkflowLimit")
    return 1
