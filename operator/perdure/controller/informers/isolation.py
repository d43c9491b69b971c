"""Process objects one by one, so that an invalid one does not affect the others."""

from collections.abc import Callable

import structlog

from perdure.kube import client as kube


def take_in(obj: kube.Object, take: Callable[[kube.Object], None]) -> None:
    """Call `take` with an object, and log an exception with the object's name instead of raising it."""
    try:
        take(obj)
    except Exception:  # noqa: BLE001 - one object's trouble must not end the operator
        meta = obj["metadata"]
        structlog.get_logger("perdure.controller").exception(
            "Could not process an object", kind=obj.get("kind"), namespace=meta.get("namespace"), name=meta.get("name")
        )
