import re
from pathlib import Path

from cluster import projectimage
from cluster.paths import REPOSITORY

ENVIRONMENT = {
    "PIP_INDEX_URL": "https://example.com/simple",
    "PIP_DEFAULT_TIMEOUT": "60",
    "PATH": "/bin",
    "PIP_CERT": "",
}


def test_pip_settings_of_the_host_become_a_pip_conf() -> None:
    want = {"default-timeout": "60", "index-url": "https://example.com/simple"}
    assert projectimage.pip_settings(ENVIRONMENT) == want


def test_docker_gets_only_the_names_of_build_arguments() -> None:
    assert projectimage.pip_build_arguments(ENVIRONMENT) == [
        "--build-arg=PIP_DEFAULT_TIMEOUT",
        "--build-arg=PIP_INDEX_URL",
    ]


def test_settings_and_local_wheels_are_mounted_read_only(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    environment = {"PIP_FIND_LINKS": f"{wheels} {tmp_path / 'absent'} https://example.com/wheels"}
    volumes = projectimage.volumes(environment, tmp_path)
    assert f"--volume={tmp_path / 'pip.conf'}:/etc/pip.conf:ro" in volumes
    assert f"--volume={wheels}:{wheels}:ro" in volumes
    assert not any("absent" in volume or "example.com" in volume for volume in volumes)
    assert "find-links" in (tmp_path / "pip.conf").read_text()


def test_a_host_without_pip_settings_gets_no_pip_conf(tmp_path: Path) -> None:
    assert not any("pip.conf" in volume for volume in projectimage.volumes({}, tmp_path))


def test_the_image_of_a_checkout_has_its_commit(tmp_path: Path) -> None:
    assert projectimage.revision_arguments(tmp_path) == []
    (found,) = projectimage.revision_arguments(REPOSITORY)
    assert re.fullmatch(r"--build-arg=REVISION=[0-9a-f]{40}", found)
