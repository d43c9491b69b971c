"""Choose the node image: the stock one if it is available, otherwise our own."""

import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

REGISTRY = "https://registry-1.docker.io/v2/"
STOCK_REPOSITORY = "kindest/node"
PROBE_SECONDS = 3.0


class NodeImage(StrEnum):
    """Where the node image comes from."""

    CHOSEN = "chosen"
    """The user named one in NODE_IMAGE."""
    STOCK = "stock"
    """``kindest/node``, the one that this version of kind defaults to."""
    OWN = "own"
    """Built here from Go modules and Debian packages."""


@dataclass(frozen=True, slots=True)
class NodeImageChoice:
    """A choice and the reason for it."""

    image: NodeImage
    reason: str


def registry_answers(url: str = REGISTRY, timeout: float = PROBE_SECONDS) -> bool:
    """Request the version of the registry; "unauthorized" is a valid response, too."""
    try:
        with urllib.request.urlopen(url, timeout=timeout):  # noqa: S310  (https, constant)
            return True
    except urllib.error.HTTPError as error:
        return error.code == 401  # noqa: PLR2004  (unauthorized: there is a registry)
    except (OSError, ValueError):
        return False


def choose_node_image(
    *,
    chosen: str,
    minor: str,
    local_images: frozenset[str],
    project_image: str,
    registry_reachable: Callable[[], bool],
) -> NodeImageChoice:
    """Choose the node image. Contact the registry only if nothing local decides."""
    if chosen:
        return NodeImageChoice(NodeImage.CHOSEN, "NODE_IMAGE is set")
    if minor:
        return NodeImageChoice(NodeImage.OWN, f"it has Kubernetes {minor}")
    if any(image.startswith(f"{STOCK_REPOSITORY}:") for image in local_images):
        return NodeImageChoice(NodeImage.STOCK, "Docker has it already")
    if project_image in local_images:
        return NodeImageChoice(NodeImage.OWN, "Docker has it already")
    if registry_reachable():
        return NodeImageChoice(NodeImage.STOCK, "a registry answers")
    return NodeImageChoice(NodeImage.OWN, "no registry answers")
