"""Operations on a real cluster: requests and their answers."""

from typing import Any

from support.cluster.namespace import Cluster, Json


def inline(*steps: Json, **more: object) -> Json:
    return {"inline": {"steps": list(steps), **more}}


def operation(name: str, target: str | Json, **spec: Any) -> Json:
    whom = {"kind": "WorkflowRun", "name": target} if isinstance(target, str) else target
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Operation",
        "metadata": {"name": name},
        "spec": {"target": whom, **spec},
    }


def answer(namespace: Cluster, name: str) -> Json:
    """The status of an Operation, once it is answered."""

    def look() -> Json | None:
        status: Json = (namespace.get("operation", name) or {}).get("status") or {}
        return status if status.get("completionTime") else None

    result: Json = namespace.wait(f"an answer to {name}", look)
    return result


def ask(namespace: Cluster, name: str, target: str | Json, **spec: Any) -> tuple[str, str]:
    """Make a request, and return the reason and the message of its answer."""
    namespace.create(operation(name, target, **spec))
    status = answer(namespace, name)
    (condition,) = status["conditions"]
    assert (condition["status"], condition["type"]) == ("True", status["phase"])
    assert (status["phase"] == "Complete") == (condition["reason"] in {"Done", "Deferred"})
    return condition["reason"], condition["message"]
