from pathlib import Path

import pytest

from cluster.docker import ProjectDaemon, has_cap_sys_resource, install_runc_wrapper
from cluster.paths import LONGEST_RUN_FOLDER, Cache


@pytest.mark.parametrize(("bounding", "want"), [("000001ffffffffff", True), ("000001fffeffffff", False)])
def test_the_capability_is_read_from_the_bounding_set(tmp_path: Path, bounding: str, want: bool) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tbash\nCapEff:\t0000000000000000\nCapBnd:\t{bounding}\n")
    assert has_cap_sys_resource(status) is want


def test_runc_is_wrapped_only_where_the_capability_is_missing(tmp_path: Path) -> None:
    daemon = ProjectDaemon(Cache(tmp_path))
    assert "runtimes" not in daemon.settings(capable=True)
    settings = daemon.settings(capable=False)
    runtimes = settings["runtimes"]
    assert isinstance(runtimes, dict)
    assert settings["default-runtime"] in runtimes


def test_the_daemon_writes_only_to_the_cache_folder() -> None:
    settings = ProjectDaemon(Cache(Path("/cache"))).settings(capable=True)
    for key in ("data-root", "exec-root", "pidfile"):
        assert str(settings[key]).startswith("/cache/")


def test_socket_paths_of_a_deep_cache_folder_are_short() -> None:
    deep = Cache(Path("/home/somebody") / ("long" * 20))
    assert len(str(deep.docker_run)) <= LONGEST_RUN_FOLDER
    assert deep.docker_run != Cache(Path("/elsewhere") / ("long" * 20)).docker_run


def test_two_caches_have_two_bridges_whose_names_the_kernel_accepts() -> None:
    bridges = {ProjectDaemon(Cache(Path(root))).bridge for root in ("/a", "/b")}
    assert len(bridges) == 2
    assert all(len(bridge) <= 15 for bridge in bridges)


def test_the_wrapper_runs_with_this_python(tmp_path: Path) -> None:
    target = tmp_path / "runc-wrapper"
    install_runc_wrapper(target)
    first = target.read_text().splitlines()[0]
    assert first.startswith("#!/")
    assert first.endswith(" -IS")
    assert target.stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({"PERDURE_CACHE": "/x", "XDG_CACHE_HOME": "/y"}, "/x"),
        ({"XDG_CACHE_HOME": "/y"}, "/y/perdure"),
    ],
)
def test_the_cache_folder_is_taken_from_the_environment(environment: dict[str, str], want: str) -> None:
    assert Cache.from_environment(environment).root == Path(want)
