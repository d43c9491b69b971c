"""The entry points of images: a shell that returns outputs has to start what a container without a `command` runs.

Argo reads them from the registry, or from its ConfigMap. Here, the ConfigMap is read, if it is one of the files; those of a few
common images are known.
"""

import re
from typing import Final

import yaml

from perdure.importing.reader import Object

_KNOWN: Final[dict[str, Object]] = {
    "alpine": {"cmd": ["/bin/sh"]},
    "argoproj/argosay": {"entrypoint": ["/argosay"]},
    "bash": {"entrypoint": ["docker-entrypoint.sh"], "cmd": ["bash"]},
    "busybox": {"cmd": ["sh"]},
    "debian": {"cmd": ["bash"]},
    "python": {"cmd": ["python3"]},
    "ubuntu": {"cmd": ["/bin/bash"]},
}
"""By repository; all their versions have the same."""
_REGISTRY: Final = re.compile(r"(?:(?:docker\.io|mirror\.gcr\.io)/)?(?:library/)?")


class EntryPoints:
    """The entry points and the default arguments of images."""

    def __init__(self, images: str = "") -> None:
        """`images`: the field of Argo's ConfigMap, in YAML."""
        try:
            found = yaml.safe_load(images)
        except yaml.YAMLError:
            found = None
        self._listed: Object = found if isinstance(found, dict) else {}

    def line(self, container: Object) -> list[str] | None:
        """Return the command line of a container without a command; None if its image is not known."""
        found = self._of(str(container.get("image")))
        if found is None:
            return None
        args = container.get("args")
        return [*_words(found, "entrypoint"), *(_words(found, "cmd") if args is None else map(str, args))] or None

    def _of(self, image: str) -> Object | None:
        if isinstance(self._listed.get(image), dict):
            return dict(self._listed[image])
        repository = re.sub(r"(?:@.*|:[^/]*)\Z", "", image)
        return _KNOWN.get(_REGISTRY.sub("", repository, count=1))


def _words(found: Object, field: str) -> list[str]:
    return [str(each) for each in found.get(field) or []]
