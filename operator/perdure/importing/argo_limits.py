"""Converts the `synchronization` of Argo's workflows to WorkflowLimits."""

from typing import Any

from perdure.importing.argo_library import Library
from perdure.importing.field_reader import Fields, Object, valid_name


def limits(spec: Fields, library: Library) -> tuple[list[Object], list[Object]]:
    """Take the locks of a workflow.

    Args:
        spec: The spec; takes `synchronization`.
        library: The ConfigMaps of the files, with the sizes of semaphores.

    Returns:
        The `limits` of the definition, and the specs of the WorkflowLimits with their names.
    """
    given = spec.part("synchronization")
    mutexes = [*given.parts("mutexes"), *([given.part("mutex")] if "mutex" in given else [])]
    semaphores = [*given.parts("semaphores"), *([given.part("semaphore")] if "semaphore" in given else [])]
    made: list[Object] = []
    for each in mutexes:
        made.append({"name": _name(each.text("name") or "mutex"), "capacity": 1})
        _scope(each)
    for each in semaphores:
        reference = each.take("configMapKeyRef") or each.take("database") or {}
        name = str(reference.get("key") or reference.get("name"))
        made.append({"name": _name(name), "capacity": _capacity(each, reference, library)})
        _scope(each)
    return [{"name": each["name"]} for each in made], made


def _scope(lock: Fields) -> None:
    if lock.take("database"):
        lock.note("database", "a WorkflowLimit counts the runs of one namespace of one cluster")
    if lock.take("namespace"):
        lock.note("namespace", "a WorkflowLimit counts the runs of its own namespace")
    lock.done({})


def _capacity(semaphore: Fields, reference: Any, library: Library) -> int:
    found = str(library.entry(reference) or "")
    if found.isdigit():
        return int(found)
    semaphore.note("", "the size of the semaphore is in none of the files: set `capacity` of the WorkflowLimit")
    return 1


def _name(text: str) -> str:
    return valid_name(text).lower().replace("_", "-").strip("-")
