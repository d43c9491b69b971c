"""Reads scenarios and manifests from files, and simulates them."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.cli.files.documents import CHECK_NAME, STDIN, UnreadableFileError, read_documents, read_file
from perdure.simulation.manifests import BadFileError, Manifest, read_definitions, read_policies, read_scenario
from perdure.simulation.report import Report
from perdure.simulation.scenario import Scenario
from perdure.simulation.simulator import Simulator
from perdure.simulation.transcript import EndlessError

if TYPE_CHECKING:
    from perdure.api.kinds.retrypolicy import RetryPolicySpec
    from perdure.flow.scenarios import FlowReport

Result = tuple[Scenario, "Report | FlowReport"]


def simulate_scenario(files: Iterable[str], scenario_file: str | None, input_: Any = None) -> Result:
    """Simulate the scenario of some files.

    Args:
        files: Manifests, or a Python module with flows; `-` is standard input.
        scenario_file: The scenario, which may reference further files; None for a scenario of defaults.
        input_: Input of the run, instead of the input in the scenario; None to use the scenario.

    Returns:
        The scenario and its result.

    Raises:
        UnreadableFileError: A file cannot be read.
        BadFileError: A file is not valid, or the simulation does not end.
    """
    source = scenario_file or "the scenario"
    data = None
    if scenario_file is not None:
        documents = read_documents(scenario_file)
        if len(documents) > 1:
            raise BadFileError(
                f"{source}: must be one scenario, but has {len(documents)} documents; write one file for each"
            )
        data = documents[0] if documents else None
    if input_ is not None:
        data = {**(data or {}), "input": input_}
    scenario = read_scenario(data, source)
    files = list(files)
    folder = Path(scenario_file).parent if scenario_file not in {None, STDIN} and scenario_file else Path()
    modules = [file for file in (*files, *(str(folder / name) for name in scenario.files)) if file.endswith(".py")]
    if modules:
        policies = read_policies(_manifests([file for file in files if file not in modules], scenario, folder))
        return scenario, _simulate_flow(modules, scenario, source, policies)
    manifests = list(_manifests(files, scenario, folder))
    world = Simulator(read_definitions(manifests, scenario, source), scenario)
    try:
        world.run()
    except EndlessError as error:
        raise BadFileError(f"{source}: {error}") from error
    return scenario, Report(world)


def _simulate_flow(
    modules: list[str], scenario: Scenario, source: str, policies: "Mapping[str, RetryPolicySpec]"
) -> "FlowReport":
    if len({Path(module).resolve() for module in modules}) > 1:
        raise BadFileError(f"{source}: a scenario has one module with flows, but {', '.join(modules)} are several")
    from perdure.flow.scenarios import simulate_flow  # noqa: PLC0415 - the Temporal SDK is slow to import

    return simulate_flow(modules[0], scenario, source, policies)


def _manifests(files: list[str], scenario: Scenario, folder: Path) -> Iterator[Manifest]:
    for file in files:
        yield from _manifests_in(file)
    known = {Path(file).resolve() for file in files if file != STDIN}
    for names, extra in ((scenario.files, False), (scenario.workflows, True), (scenario.retry_policies, True)):
        for name in names:
            path = folder / name
            if path.suffix != ".py" and path.resolve() not in known:
                known.add(path.resolve())
                yield from _manifests_in(str(path), extra=extra)


def _manifests_in(file: str, *, extra: bool = False) -> Iterator[Manifest]:
    for document in read_file(file, advice=CHECK_NAME):
        document.warn_of_rounding()
        yield Manifest(file, document.data, extra)


def scenarios_in(folder: Path) -> list[Path]:
    """Return the scenarios of a folder and its subfolders: YAML files that are not manifests.

    Args:
        folder: A folder, or a single scenario.

    Raises:
        BadFileError: The folder does not exist, or cannot be read.
    """
    try:
        is_file, is_folder = folder.is_file(), folder.is_dir()
    except OSError as error:
        raise BadFileError(f"{folder}: cannot be read: {error.strerror}") from error
    if is_file:
        return [folder]
    if not is_folder:
        raise BadFileError(f"{folder}: no such folder; name one that contains scenarios")
    found = (file for file in sorted(folder.rglob("*")) if file.suffix in {".yaml", ".yml"} and file.is_file())
    return [file for file in found if _may_be_scenario(file)]


def _may_be_scenario(file: Path) -> bool:
    """Whether a file is a scenario, or must be reported as invalid."""
    if file.name in {"kustomization.yaml", "kustomization.yml"}:
        return False
    try:
        documents = read_documents(str(file))
    except UnreadableFileError:
        return True
    return any(not isinstance(data, dict) or data.get("kind", "Scenario") == "Scenario" for data in documents)
