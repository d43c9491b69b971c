"""Nexus: endpoints, and commands that name none."""

from typing import Any

from fidelity.driver import Session, command, payload, scenario

NO_ID = "00000000-0000-4000-8000-000000000000"


def _spec(s: Session, base: str = "billing", **fields: Any) -> Any:
    worker = {"namespace": s.server.namespace, "task_queue": s.named("handlers")}
    return {"name": s.named(base), "target": {"worker": worker}, **fields}


@scenario
def nexus_endpoints(s: Session) -> None:
    made = s.call("CreateNexusEndpoint", spec=_spec(s, description=payload("charges customers"))).endpoint
    s.call("CreateNexusEndpoint", "taken", spec=_spec(s))
    s.call("CreateNexusEndpoint", "no spec")
    s.call("CreateNexusEndpoint", "no target", spec={"name": s.named("other")})
    s.call("CreateNexusEndpoint", "odd name", spec=_spec(s) | {"name": "1st"})
    s.call("CreateNexusEndpoint", "long name", spec=_spec(s) | {"name": "x" * 201})
    nowhere = {"target": {"worker": {"namespace": "nowhere-" + s.suffix, "task_queue": "q"}}}
    s.call("CreateNexusEndpoint", "no such namespace", spec=_spec(s, "other") | nowhere)
    s.call(
        "CreateNexusEndpoint",
        "no task queue",
        spec=_spec(s, "other", target={"worker": {"namespace": s.server.namespace}}),
    )
    s.call("GetNexusEndpoint", id=made.id)
    s.call("GetNexusEndpoint", "no ID")
    s.call("GetNexusEndpoint", "odd ID", id="first")
    s.call("GetNexusEndpoint", "unknown", id=NO_ID)
    s.call("ListNexusEndpoints", name=s.named("billing"))
    s.call("ListNexusEndpoints", "unknown", name=s.named("other"))
    s.call("ListNexusEndpoints", "large pages", page_size=1_001)
    s.call("UpdateNexusEndpoint", id=made.id, version=made.version, spec=_spec(s, "invoicing"))
    s.call("UpdateNexusEndpoint", "old version", id=made.id, version=made.version, spec=_spec(s))
    s.call("UpdateNexusEndpoint", "unknown", id=NO_ID, version=1, spec=_spec(s, "other"))
    s.call("GetNexusEndpoint", "updated", id=made.id)
    s.call("DeleteNexusEndpoint", "no version", id=made.id)
    s.call("DeleteNexusEndpoint", id=made.id, version=made.version + 1)
    s.call("DeleteNexusEndpoint", "deleted", id=made.id, version=made.version + 1)
    s.call("GetNexusEndpoint", "deleted", id=made.id)


@scenario
def nexus_commands_refused(s: Session) -> None:
    for base, refused in (
        ("no endpoint", command("SCHEDULE_NEXUS_OPERATION", endpoint=s.named("nowhere"), service="s", operation="o")),
        ("no operation", command("REQUEST_CANCEL_NEXUS_OPERATION", scheduled_event_id="5")),
    ):
        s.start(base)
        s.decide(refused, note=base)
        s.history(base)
        s.close(base)
