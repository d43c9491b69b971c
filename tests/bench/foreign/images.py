"""Replace the images of examples that only need a shell or Python by the local image, which has both."""

import re
from typing import Any, Final

from support.cluster.namespace import IMAGE, Json

_LOCAL: Final = re.compile(
    r"(?:(?:docker\.io|mirror\.gcr\.io|cgr\.dev/chainguard)/)?(?:library/)?"
    r"(?:alpine|bash|busybox|centos|debian|fedora|python|ubuntu)(?:[:@].*)?"
)
_ARGOSAY: Final = re.compile(r"(?:argoproj|alexcollinsintuit)/argosay:v2")
_PROGRAM: Final = """
import sys, time
words = sys.argv[1:] or ["cowsay"]
if words[0] == "echo":
    print(words[1] if len(words) > 1 else "", file=open(words[2], "w") if len(words) > 2 else sys.stdout)
elif words[0] == "cat":
    print(*(open(name).read() for name in words[1:]), end="")
elif words[0] == "sleep":
    time.sleep(float(words[1].rstrip("s")))
elif words[0] == "exit":
    sys.exit(int(words[1]) if len(words) > 1 else 0)
"""
"""The commands of Argo's test image `argosay` that its examples use."""
_RUNS_ARGOSAY: Final = ["python", "-c", _PROGRAM]
_FIELDS: Final = (
    frozenset(
        {"args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name", "ports"}
    )
    | {"readinessProbe", "resources", "restartPolicy", "result", "securityContext", "source", "startupProbe", "stdin"}
    | {"terminationMessagePath", "terminationMessagePolicy", "tty", "volumeDevices", "volumeMounts", "workingDir"}
)
"""The fields of a container or a script."""
_DATA: Final = frozenset({"input", "items", "output", "properties"})
"""Fields with values that may look like containers."""


def localize(manifest: Any, wanted: set[str]) -> Any:
    """Replace the images in a manifest.

    Args:
        manifest: The manifest, or a part of it.
        wanted: Collects the images that cannot be replaced.
    """
    if isinstance(manifest, list):
        return [localize(each, wanted) for each in manifest]
    if not isinstance(manifest, dict):
        return manifest
    inner = {key: value if key in _DATA else localize(value, wanted) for key, value in manifest.items()}
    image = inner.get("image")
    return _container(inner, image, wanted) if isinstance(image, str) and inner.keys() <= _FIELDS else inner


def _container(container: Json, image: str, wanted: set[str]) -> Json:
    if _ARGOSAY.fullmatch(image):
        container = _with_argosay(container)
    elif not (_LOCAL.fullmatch(image) or "${" in image):
        wanted.add(image)
        return container
    context = {**container.get("securityContext", {}), "runAsUser": 0}
    same = {"image": IMAGE, "imagePullPolicy": "IfNotPresent", "securityContext": context}
    return {"workingDir": "/", **container, **same}  # the user and the folder of the original images


def _with_argosay(container: Json) -> Json:
    """Make a container run the local program instead of `argosay`, the entry point of its image."""
    if "source" in container:  # a script, with a shell
        return container
    if not container.get("command"):
        return {**container, "command": _RUNS_ARGOSAY}
    return {
        **container,
        **{
            field: [word for each in container[field] for word in _argosay_word(each)]
            for field in ("command", "args")
            if field in container
        },
    }


def _argosay_word(word: str) -> list[str]:
    return _RUNS_ARGOSAY if word in {"argosay", "/argosay"} else [word]
