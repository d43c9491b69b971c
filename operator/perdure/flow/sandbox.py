"""The sandbox of flows, the same for workers and for local runs: it imports the module of a flow again for each run.

A flow that reads the clock, takes random numbers, or does input or output fails there, because a replay would see other values.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

import perdure.flow.control  # noqa: F401 - imported here, the sandbox passes it through to flows, which import it when they use it
from perdure.flow import definitions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from temporalio.api.failure.v1 import Failure
    from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails

    from perdure.flow.definitions import Flow

RESTRICTED = "RestrictedWorkflowAccessError"
"""The type of the failure of a flow that did what the sandbox forbids."""

_PERDURE = __name__.partition(".")[0]
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, such as those of a virtual environment beside the flow."""

_INSTEAD = (
    (("time.sleep",), "use `await pf.sleep(…)`"),
    (("time.", "datetime."), "use `pf.now()`"),
    (("random.",), "use `workflow.random()` of temporalio"),
    (("uuid.",), "use `workflow.uuid4()` of temporalio"),
)


def sandbox(flows: Iterable[Flow[..., object]]) -> SandboxedWorkflowRunner:
    """Return what runs flows in a sandbox."""
    if _place not in definitions.LISTENERS:
        definitions.LISTENERS.append(_place)
    return SandboxedWorkflowRunner(restrictions=_restrictions(flows))


def sandboxed_instance(flow: Flow[..., object], details: WorkflowInstanceDetails) -> WorkflowInstance | None:
    """Return an instance of a flow in a sandbox; None if its module cannot be imported again.

    That is so for a flow in a notebook or inside of a function, which no worker can run either.
    """
    module = flow.function.__module__
    if "<locals>" in flow.function.__qualname__ or _file_of(module) is None:
        return None
    try:
        return sandbox([flow]).create_instance(details)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        return None  # it was loaded from a path that is not searched


def advice(failure: Failure, flow: Flow[..., object]) -> str:
    """Return what a flow did that the sandbox forbids, where, and what to do instead."""
    found = failure.message.partition("Cannot access ")[2].partition(" ")[0]
    name = found.removeprefix("__builtins__.").removesuffix(".__call__") or failure.message
    fix = next((fix for names, fix in _INSTEAD if name.startswith(names)), "do this in an activity")
    file = _file_of(flow.function.__module__)
    lines = re.findall(rf'File "{re.escape(file or "")}", line (\d+)', failure.stack_trace)
    place = f"{file}:{lines[-1]}: " if lines else ""
    return f"{place}a flow must not use {name}, because its replay would see another value: {fix}"


def _restrictions(flows: Iterable[Flow[..., object]]) -> SandboxRestrictions:
    """Import again, for each run, only the modules next to the flow: the others are libraries, and hold no state of runs.

    The SDK restricts methods of `ZoneInfo` by a proxy of the class, whose objects `datetime` rejects.
    """
    ours = {flow.function.__module__ for flow in flows}
    folders = {str(Path(found).parent) for each in ours if (found := _file_of(each))}
    packages = {each.partition(".")[0] for each in ours}
    libraries = set()
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        if package != _PERDURE and (
            name == "__main__"
            or _is_in(getattr(module, "__file__", None), folders)
            or any(f"{each}.".startswith(f"{name}.") for each in ours)
        ):
            continue
        libraries.add(name if package in packages else package)  # what is passed through includes what is in it
    members = SandboxRestrictions.default.invalid_module_members.with_child_unrestricted("zoneinfo", "ZoneInfo")
    return replace(SandboxRestrictions.default, invalid_module_members=members).with_passthrough_modules(*libraries)


def _file_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def _is_in(file: str | None, folders: set[str]) -> bool:
    """Return whether a module is in one of some folders, and not in an installed package."""
    if file is None:
        return False
    path = Path(file)
    return any(
        str(parent) in folders and _LIBRARIES.isdisjoint((parent.name, *path.relative_to(parent).parts))
        for parent in path.parents
    )


def _place(flow: Flow[..., object]) -> None:
    """Put the class of a flow into its module, where the sandbox looks for it."""
    flow.function.__globals__[flow.workflow.__name__] = flow.workflow
