"""Which node images are removed after a build. A script stands in for the client of Docker."""

from pathlib import Path

import pytest

from cluster import gobuild, nodeimage
from cluster.docker import Docker

SCRIPT = """\
#!/bin/sh
case $1 in
  images) cat "$(dirname "$0")/images" ;;
  rmi) echo "$2" >> "$(dirname "$0")/removed" ;;
esac
"""


def test_a_build_removes_images_of_other_sources_but_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = nodeimage.image_name(gobuild.kubernetes("1.32"))
    built = f"{nodeimage.REPOSITORY}:v1.36.3-of-the-sources-when-the-build-began"
    earlier = f"{nodeimage.REPOSITORY}:v1.36.3-of-last-week"
    (tmp_path / "images").write_text(f"{current}\n{built}\n{earlier}\nkindest/node:v1.36.3")
    (tmp_path / "docker").write_text(SCRIPT)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    nodeimage.remove_superseded(Docker(None, is_ours=False), built)
    assert (tmp_path / "removed").read_text().split() == [earlier]
