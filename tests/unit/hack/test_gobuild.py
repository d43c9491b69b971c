from pathlib import Path

import pytest

from cluster import gobuild
from cluster.errors import ClusterError
from cluster.paths import NODE_IMAGE
from cluster.tools import kubectl_suits, version_in

KUBERNETES = [gobuild.KUBERNETES, *gobuild.OTHER_KUBERNETES]
PROGRAMS = [*KUBERNETES, *gobuild.NODE_PROGRAMS, gobuild.KIND, gobuild.HELM, gobuild.KWOK]
PROGRAMS += [gobuild.TEMPORAL, gobuild.UI, gobuild.VERSITYGW, gobuild.REGISTRY, gobuild.ETCD_TOOLS, gobuild.ARGO]
PROGRAMS += [gobuild.TEKTON]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"{program.name} {program.version}")
def test_every_program_has_its_module_locked(program: gobuild.GoProgram) -> None:
    assert version_in(program.version) != (0, 0, 0)
    assert f"{program.module} {program.version} h1:" in (program.folder / f"{program.modules}.sum").read_text()


def test_every_module_folder_is_built_by_some_program() -> None:
    assert {file.parent.name for file in NODE_IMAGE.glob("*/go.mod")} == {program.name for program in PROGRAMS}


@pytest.mark.parametrize("kubernetes", KUBERNETES, ids=lambda program: program.version)
def test_all_staging_modules_have_the_version_of_kubernetes(kubernetes: gobuild.GoProgram) -> None:
    go_mod = (kubernetes.folder / f"{kubernetes.modules}.mod").read_text()
    want = kubernetes.version.replace("v1.", "v0.", 1)
    replaced = [line.split()[-1] for line in go_mod.splitlines() if "=> k8s.io/" in line]
    assert replaced
    assert set(replaced) == {want}


def test_versions_are_stamped_into_the_binary() -> None:
    flags = gobuild.KUBERNETES.linker_flags()
    version = gobuild.KUBERNETES.version
    assert f"-X k8s.io/component-base/version.gitVersion={version}" in flags
    assert f"-X k8s.io/client-go/pkg/version.gitMinor={version.split('.')[1]}" in flags


def test_a_minor_version_of_kubernetes_can_be_chosen() -> None:
    assert gobuild.kubernetes("") is gobuild.KUBERNETES
    for program in gobuild.OTHER_KUBERNETES:
        assert gobuild.kubernetes(program.modules) is program
        assert program.version.startswith(f"v{program.modules}.")
        assert f"-modfile={program.modules}.mod" in program.command("out")
    with pytest.raises(ClusterError, match=r"must be one of 1\.32, "):
        gobuild.kubernetes("1.3")


@pytest.mark.parametrize("kubernetes", KUBERNETES, ids=lambda program: program.version)
def test_manifests_are_validated_with_the_modules_of_a_version_of_kubernetes(kubernetes: gobuild.GoProgram) -> None:
    minor = kubernetes.version.removeprefix("v").rpartition(".")[0]
    program = gobuild.admission(minor)
    assert program.version == kubernetes.version
    assert (program.folder / f"{program.modules}.sum").samefile(kubernetes.folder / f"{kubernetes.modules}.sum")
    assert (program.folder / "go.mod").exists(), "go build -modfile only finds the root of the module with it"


def test_a_module_that_is_not_required_is_an_error() -> None:
    with pytest.raises(ClusterError, match="does not require"):
        gobuild.required_version("module x\n\nrequire example.com/ab v1.0.0\n", "example.com/a")


def test_progress_counts_packages_and_before_that_downloads(tmp_path: Path) -> None:
    log = tmp_path / "log"
    progress = gobuild.packages_compiled(log)
    assert progress() == ""
    log.write_text("go: downloading a v1\ngo: downloading b v1\n")
    assert progress() == "2 modules downloaded"
    log.write_text("go: downloading a v1\nexample.com/a\n")
    assert progress() == "1 packages compiled"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("kind v0.33.0 go1.26.8 linux/amd64", (0, 33, 0)),
        ("Client Version: v1.36.3\nKustomize Version: v5.8.0", (1, 36, 3)),
        ("v4.3.1+g1234", (4, 3, 1)),
        ("no version", (0, 0, 0)),
    ],
)
def test_a_version_is_parsed_from_the_output_of_tools(text: str, want: tuple[int, int, int]) -> None:
    assert version_in(text) == want


def test_kubectl_is_used_within_one_minor_version() -> None:
    _, minor, _ = version_in(gobuild.KUBERNETES.version)
    assert kubectl_suits((1, minor - 1, 9))
    assert kubectl_suits((1, minor + 1, 0))
    assert not kubectl_suits((1, minor - 2, 0))
