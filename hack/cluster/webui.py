"""The image of Temporal's Web UI if the stock one cannot be pulled: the same program, built from its Go module.

It has the layout and the settings of ``temporalio/ui``, so the chart works with both.
"""

import platform
from pathlib import Path

from cluster import commands, gobuild, nodeimage
from cluster.archive import Image, write_archive
from cluster.console import stage
from cluster.paths import Cache
from cluster.store import ensure_entry, fingerprint, locked, work_folder

REPOSITORY = "perdure.local/temporal-ui"

HOME = "home/ui-server"
METADATA = {"WorkingDir": f"/{HOME}", "Entrypoint": ["./ui-server", "--env", "docker", "start"], "User": "1000"}


def image_name() -> str:
    """Return the name of the image for the current sources."""
    return f"{REPOSITORY}:{gobuild.UI.version}-{_key()}"


def build(cache: Cache) -> Path:
    """Return an archive of the image, building it first if it is not there."""
    with locked(cache.locks / "build"):
        return ensure_entry(
            cache.built / f"{gobuild.UI.name}-image-{_key()}.tar", cache.work, lambda to: _write(cache, to)
        )


def _key() -> str:
    source = Path(__file__)
    return fingerprint(files=[source, source.with_name("archive.py")], words=[gobuild.UI.key()])


def _write(cache: Cache, archive: Path) -> None:
    binary = gobuild.build(cache, gobuild.UI) / "server"
    settings = gobuild.module_folder(gobuild.UI) / "config" / "docker.yaml"
    with work_folder(cache.work, "ui-image") as work, stage(f"{image_name()}: write the archive"):
        root = work / "root"
        commands.capture(["install", "-D", "-m755", str(binary), str(root / HOME / "ui-server")])
        commands.capture(["install", "-D", "-m644", str(settings), str(root / HOME / "config" / "docker.yaml")])
        image = Image((image_name(),), (nodeimage.layer_of_folder(root),), METADATA)
        with archive.open("wb") as output:
            write_archive([image], platform.machine(), output)
