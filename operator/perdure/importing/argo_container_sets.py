"""Converts the `containerSet` of Argo's templates: several containers in one pod, some of which wait for others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from perdure.api.container_needs import NEEDS
from perdure.importing.argo_pods import Containers
from perdure.importing.field_reader import Fields, Object
from perdure.importing.programs import Returns

_MAIN = "main"
"""The container that returns the outputs."""


@dataclass(frozen=True, slots=True)
class ContainerSet:
    """The containers of an activity."""

    main: Object
    before: Sequence[Object] = ()
    """Init containers, which run in order."""
    others: Sequence[Object] = ()
    """Containers that run next to the main one, in an order that `needs` define."""


def container_set(group: Fields, containers: Containers, returns: Returns) -> ContainerSet:
    """Convert a `containerSet`.

    Containers that need each other in a row become init containers, which needs nothing of their images. Others have `needs`.

    Args:
        group: The `containerSet`.
        containers: Converts a container.
        returns: What steps read of the main container.
    """
    shared = group.take("volumeMounts", [])
    sources = {str(each.data.get("name")): each for each in group.parts("containers")}
    needs = {name: each.take("dependencies", []) for name, each in sources.items()}
    if "retryStrategy" in group:
        group.gap("retryStrategy", "containers are not retried by themselves; set it on the template")
        group.drop("retryStrategy")
    group.done({})
    if returns and _MAIN in needs:
        after = _dependents(_MAIN, needs)
        if after:
            group.note(
                "containers", "outputs are read when `main` has ended, not after the containers that depend on it"
            )
        # Argo reads outputs when all containers have ended, so they may be those of any of them.
        needs[_MAIN] = [name for name in needs if name != _MAIN and name not in after]
    ordered = _ordered(needs)
    unknown = [name for name in ordered if not sources[name].data.get("command") and _waits(name, needs)]
    in_row = _is_row(ordered, needs)
    if unknown and not in_row:
        names = ", ".join(f"`{name}`" for name in unknown)
        group.note("containers", f"they run one after the other; for parallel ones, set the `command` of {names}")
    main = _MAIN if _MAIN in needs and not (unknown or in_row) else ordered[-1]
    if returns and _MAIN in needs and main != _MAIN:
        group.gap("containers", "outputs are those of the last container; let `main` depend on the others")
    made = {name: _made(sources[name], containers, returns if name == main else Returns(), shared) for name in ordered}
    if unknown or in_row:
        return ContainerSet(made[main], [{"name": name, **made[name]} for name in ordered[:-1]])
    own = {name: {"name": name, NEEDS: needs[name], **made[name]} for name in ordered}
    return ContainerSet(own.pop(main), others=list(own.values()))


def _made(source: Fields, containers: Containers, returns: Returns, shared: Sequence[Object]) -> Object:
    source.drop("name")
    made = containers.main(source, returns)
    mounts = [*shared, *made.pop("volumeMounts", [])]
    return {**made, "volumeMounts": [dict(each) for each in mounts]} if mounts else made


def _waits(name: str, needs: Mapping[str, Sequence[str]]) -> bool:
    """Whether a container waits for others, or others for it."""
    return bool(needs[name]) or any(name in others for others in needs.values())


def _dependents(name: str, needs: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the containers that wait for another one, directly or indirectly."""
    found: set[str] = set()
    while new := {other for other, before in needs.items() if {name, *found} & set(before)} - found:
        found |= new
    return found


def _is_row(ordered: Sequence[str], needs: Mapping[str, Sequence[str]]) -> bool:
    """Whether each container waits for the one before it."""
    return all(before in needs[name] for before, name in pairwise(ordered))


def _ordered(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names in topological order, the main container as late as possible."""
    made: list[str] = []
    pending = dict(needs)
    while pending:
        ready = [name for name, of in pending.items() if not set(of) & pending.keys()] or list(pending)[:1]
        first = [name for name in ready if name != _MAIN] or ready
        for name in first:
            made.append(name)
            del pending[name]
    return made
