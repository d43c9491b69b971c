"""The hooks of the documentation site: pages for linked files outside of docs/, and diagrams."""

from pathlib import Path

import pytest
from properdocs.config.defaults import ProperDocsConfig
from properdocs.structure.files import File, Files
from properdocs.structure.pages import Page

import website
from support.manuals import REPOSITORY


@pytest.fixture(scope="module")
def config() -> ProperDocsConfig:
    config = ProperDocsConfig(str(REPOSITORY / "properdocs.yml"))
    config.load_dict({"site_name": "Perdure", "plugins": [], "theme": {"name": "material"}})
    assert config.validate() == ([], [])
    config.plugins._current_plugin = "hack/website.py"  # as while a hook runs
    return config


def site(config: ProperDocsConfig, text: str) -> tuple[Files, str]:
    """The files of a site with one page, docs/runs.md, and the Markdown of that page as it is rendered."""
    file = File.generated(config, "runs.md", content=text)
    files = website.on_files(Files([file]), config)
    return files, website.on_page_markdown(text, Page(None, file, config), config, files)


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("docs/runs.md", "runs.md"),
        ("CHANGELOG.md", "source/CHANGELOG.md"),
        ("examples/temporal/app.py", "source/examples/temporal/app.py.md"),
        ("examples/operations", "source/examples/operations/index.md"),
    ],
)
def test_each_file_has_one_page(name: str, page: str) -> None:
    assert website.site_path(REPOSITORY / name) == page
    assert website.checkout_path(page) == REPOSITORY / name


def test_a_linked_file_becomes_a_page_with_its_text(config: ProperDocsConfig) -> None:
    files, markdown = site(config, "See [the code](../examples/temporal/app.py) and [data](data.md#use-a-volume).")
    assert markdown == "See [the code](source/examples/temporal/app.py.md) and [data](data.md#use-a-volume)."
    page = files.get_file_from_path("source/examples/temporal/app.py.md")
    assert page is not None
    assert (REPOSITORY / "examples/temporal/app.py").read_text(encoding="utf-8") in page.content_string


def test_files_that_a_linked_page_or_folder_links_to_become_pages(config: ProperDocsConfig) -> None:
    files, _ = site(config, "[examples](../examples/README.md), [requests](../examples/operations)")
    assert {"source/examples/approval/workflow.yaml.md", "source/examples/operations/signal.yaml.md"} <= set(
        files.src_uris
    )


def test_links_of_a_file_outside_of_docs_lead_to_pages(config: ProperDocsConfig) -> None:
    files, _ = site(config, "[examples](../examples/README.md)")
    file = files.get_file_from_path("source/examples/README.md")
    assert file is not None
    markdown = website.on_page_markdown("[data](../docs/data.md)", Page(None, file, config), config, files)
    assert markdown == "[data](../../data.md)"


def test_a_link_to_a_missing_file_is_left_for_the_strict_build(config: ProperDocsConfig) -> None:
    assert site(config, "[gone](../examples/gone.py)")[1] == "[gone](../examples/gone.py)"


def test_a_diagram_becomes_a_picture(config: ProperDocsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_CACHE", str(tmp_path))
    _, markdown = site(config, "# Runs\n\n```mermaid\nflowchart LR\n    start --> stop\n```\n\nText\n")
    assert markdown.startswith('# Runs\n\n<figure class="diagram"')
    assert "<svg" in markdown
    assert "stop" in markdown
    assert markdown.endswith("</figure>\n\nText\n")
    assert len(list((tmp_path / "diagrams").iterdir())) == 1


def test_an_invalid_diagram_fails(config: ProperDocsConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_CACHE", str(tmp_path))
    with pytest.raises(RuntimeError, match="error on line 2"):
        site(config, "```mermaid\nflowchart LR\n    start --> ]\n```\n")
