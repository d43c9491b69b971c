"""The documentation is correct: manifests are valid, links have targets, and tables name existing values."""

import re
from pathlib import Path

import pytest
import yaml

from perdure.api.crdgen import KINDS
from perdure.api.kinds.workflow import Workflow
from perdure.api.kinds.workflowrun import WorkflowRun
from perdure.api.labels import API_VERSION
from perdure.language.compiler import compile_program
from perdure.language.reuse import is_library
from perdure.observe import metrics
from support.manuals import NOT_YET, REPOSITORY, Block, Json, blocks, blocks_in, example_files, links, pages

DOCS = REPOSITORY / "docs"
OPERATOR = REPOSITORY / "operator" / "perdure"
BY_NAME = {kind.__name__: kind for kind in KINDS}


def check(manifest: Json, *, runs: bool = True) -> None:
    """Read a manifest as the operator does, and compile it if this version supports it."""
    found = BY_NAME[manifest["kind"]].parse(manifest)
    if runs and isinstance(found, Workflow) and not is_library(manifest["spec"]):
        compile_program(found.spec)
    if runs and isinstance(found, WorkflowRun) and found.spec.inline is not None:
        compile_program(found.spec.inline)


def section(page: str, title: str) -> str:
    """The part of a page below a heading, up to the next one."""
    text = (DOCS / page).read_text(encoding="utf-8")
    match = re.search(rf"^#+ {title}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    assert match, f"{page} has no section {title}"
    return match[1]


def first_column(text: str) -> set[str]:
    """The code in the first column of a section's tables."""
    return {name for row in re.findall(r"^\| (.*?) \|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("block", blocks(), ids=str)
def test_manifests_in_the_documentation_are_valid(block: Block) -> None:
    for manifest in block.ours():
        check(manifest, runs=not block.not_yet)


@pytest.mark.parametrize("file", example_files(), ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_examples_are_valid(file: Path) -> None:
    for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8")):
        if manifest.get("apiVersion") == API_VERSION:  # values of the chart have none
            check(manifest)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_has_an_existing_target(page: Path) -> None:
    broken = [
        target
        for target in links(page.read_text(encoding="utf-8"))
        if not (page.parent / target.partition("#")[0]).exists()
    ]
    assert broken == []


def test_the_list_of_pages_is_complete_and_has_the_groups_of_the_navigation() -> None:
    def page_of(entry: str | dict[str, str]) -> str:
        return entry if isinstance(entry, str) else next(iter(entry.values()))

    (first, *navigation) = yaml.safe_load((REPOSITORY / "properdocs.yml").read_text(encoding="utf-8"))["nav"]
    wanted = {title: sorted(map(page_of, pages)) for group in navigation for title, pages in group.items()}
    _, *groups = (DOCS / "pages.md").read_text(encoding="utf-8").split("\n## ")
    listed = {each.partition("\n")[0]: sorted(t.removesuffix("README.md") for t in links(each)) for each in groups}
    assert listed == wanted
    assert {page.name for page in DOCS.glob("*.md")} <= {
        page for pages in [*first.values(), *listed.values()] for page in pages
    }


@pytest.mark.parametrize("page", sorted(DOCS.glob("architecture*.md")), ids=lambda page: page.name)
def test_modules_named_in_architecture_pages_exist(page: Path) -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", page.read_text(encoding="utf-8"))
    missing = [each for each in named if not any((root / each).exists() for root in (OPERATOR, REPOSITORY))]
    assert missing == []


def test_metrics_in_the_documentation_exist() -> None:
    exposed = {f"{m.name}_total" if m.type == "counter" else m.name for m in metrics.REGISTRY.collect()}
    named = first_column(section("monitoring.md", "Metrics"))
    assert named
    assert named <= exposed


def test_chart_values_in_the_documentation_exist() -> None:
    values = yaml.safe_load((REPOSITORY / "charts" / "perdure" / "values.yaml").read_text(encoding="utf-8"))
    named = first_column(section("installing.md", "Values"))
    assert named
    for path in named:
        found = values
        for key in path.split("."):
            assert key in found, path
            found = found[key]


def test_manifest_blocks_are_found_with_line_and_marker() -> None:
    text = (
        f"# T\n\n```yaml\napiVersion: {API_VERSION}\nkind: Workflow\n```\n\n```yaml\na: 1\n```\n\n"
        f"{NOT_YET}\n```yaml\napiVersion: v1\n---\napiVersion: {API_VERSION}\n```\n"
    )
    first, second = blocks_in(Path("page.md"), text)
    assert (first.line, first.not_yet, len(first.ours())) == (3, False, 1)
    assert (second.line, second.not_yet, len(second.manifests()), len(second.ours())) == (13, True, 2, 1)


def test_only_relative_links_outside_of_code_are_found() -> None:
    text = "[a](a.md#x) `[b](b.md)` [c](https://c) [d](#d) ![e](img/e.png)\n```\n[f](f.md)\n```\n"
    assert links(text) == ["a.md#x", "img/e.png"]
