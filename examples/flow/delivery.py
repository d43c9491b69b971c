"""A release whose steps share a workspace: a volume of the run, which activities mount, also those of other images.

perdure deploy examples/flow/delivery.py --image localhost/perdure:dev --mount
perdure start --type release --task-queue release --input '{"modules": ["shop", "bank"]}' --name release-1
perdure result release-1
"""

import py_compile
import runpy
import zipfile

import perdure.flow as pf

release_steps = pf.Environment("release", cpu="20m", memory="64Mi")
source = pf.Workspace("source", size="1Gi")


@release_steps.activity(timeout="5m", retries=3, workspace=source)
def check_out(modules: list[str]) -> None:
    """Write the source, as a checkout of a repository would."""
    for number, module in enumerate(modules):
        (source.path / f"{module}.py").write_text(f"ANSWER = {42 + number}\n")


@release_steps.activity(timeout="5m", retries=3, workspace=source)
def build(module: str) -> str:
    """Compile a module next to its source, and return the name of the file. Repeated, it writes the same file again."""
    file = source.path / f"{module}.pyc"
    py_compile.compile(str(source.path / f"{module}.py"), cfile=str(file), doraise=True)
    return file.name


@release_steps.activity(timeout="5m", retries=0, workspace=source.read_only)
def test(module: str) -> int:
    """Run what was built."""
    return int(runpy.run_path(str(source.path / f"{module}.pyc"))["ANSWER"])


@release_steps.activity(timeout="5m", retries=3, workspace=source)
def pack(files: list[str]) -> int:
    """Put the files into an archive, and return its size."""
    archive = source.path / "release.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in files:
            packed.write(source.path / name, name)
    return archive.stat().st_size


@release_steps.flow
async def release(modules: list[str]) -> int:
    """Build and test all modules, and return the size of the archive with them."""
    await check_out(modules)
    files = await pf.map(build, modules, at_most=4)
    await pf.map(test, modules, failure_policy="Continue")
    return await pack(files)
