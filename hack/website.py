"""Hooks of the documentation site (properdocs.yml): files outside of docs/ that pages link to, and diagrams.

A link such as `../examples/temporal/app.py` leads to a page with the text of that file, so that the site needs no other place.
Mermaid blocks become pictures when the site is built; an invalid diagram fails the build.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Final

import mermaidx
from properdocs.config.defaults import ProperDocsConfig
from properdocs.structure.files import File, Files
from properdocs.structure.pages import Page

from cluster.paths import Cache

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
SOURCE: Final = "source/"
"""Folder of the site with the files outside of docs/."""

_LINK: Final = re.compile(r"\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
_DIAGRAM: Final = re.compile(r"^```mermaid\n(?P<source>.*?)^```$", re.DOTALL | re.MULTILINE)
_UNSEARCHED: Final = "---\nsearch: {exclude: true}\n---\n"
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".go": "go", ".java": "java", ".ts": "typescript", ".sh": "sh"}


def site_path(file: Path) -> str:
    """Name the page of a file of the checkout: its path in the site, before it is rendered."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    if file.is_dir():
        return f"{SOURCE}{file.relative_to(ROOT)}/index.md"
    name = file.relative_to(ROOT).as_posix()
    return f"{SOURCE}{name}" if file.suffix == ".md" else f"{SOURCE}{name}.md"


def checkout_path(page: str) -> Path:
    """Find the file of the checkout that a page shows: the inverse of `site_path`."""
    if not page.startswith(SOURCE):
        return DOCS / page
    file = ROOT / page.removeprefix(SOURCE)
    if file.exists():
        return file
    return file.parent if file.name == "index.md" else file.with_suffix("")


def text_of(file: Path) -> str:
    """Write the Markdown of a file or folder outside of docs/."""
    if file.is_dir():
        names = sorted(each.name for each in file.iterdir() if each.is_file())
        return "\n".join([f"{_UNSEARCHED}# {file.name}\n", *(f"- [{name}]({name})" for name in names), ""])
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    return f"{_UNSEARCHED}# {file.name}\n\n`{file.relative_to(ROOT)}`\n\n`````{_LANGUAGES.get(file.suffix, '')}\n{text}\n`````\n"


def linked_files(text: str, folder: Path) -> set[Path]:
    """Find the existing files and folders outside of docs/ that a Markdown text in a folder links to."""
    targets = {Path(os.path.normpath(folder / match["path"])) for match in _LINK.finditer(text)}
    return {
        target
        for target in targets
        if target.exists() and target.is_relative_to(ROOT) and not target.is_relative_to(DOCS)
    }


def on_config(config: ProperDocsConfig) -> ProperDocsConfig:
    """Replace each folder in the navigation by its pages."""
    config.nav = [_listed(each) for each in config.nav or []]
    return config


def _listed(entry: Any) -> Any:
    match entry:
        case str() if entry.endswith("/"):
            pages = [path.relative_to(DOCS).as_posix() for path in sorted((DOCS / entry).glob("*.md"))]
            title = (DOCS / entry / "README.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            return {title: pages}
        case dict():
            return {title: _listed(inner) for title, inner in entry.items()}
        case list():
            return [_listed(each) for each in entry]
        case _:
            return entry


def on_files(files: Files, config: ProperDocsConfig) -> Files:
    """Add a page for each file outside of docs/ that a page links to, and for those that these link to."""
    copied: set[Path] = set()
    texts = [(file.content_string, checkout_path(file.src_uri)) for file in files.documentation_pages()]
    while texts:
        text, origin = texts.pop()
        for target in linked_files(text, origin if origin.is_dir() else origin.parent) - copied:
            copied.add(target)
            content = text_of(target)
            files.append(File.generated(config, site_path(target), content=content))
            texts.append((content, target))
    return files


def on_page_markdown(markdown: str, page: Page, config: ProperDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Let links lead to the pages of `on_files`, and draw the diagrams."""
    origin = checkout_path(page.file.src_uri)
    folder = origin if origin.is_dir() else origin.parent
    here = Path(page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / match["path"]))
        if not target.exists() or not target.is_relative_to(ROOT):
            return match[0]
        return f"]({os.path.relpath(site_path(target), here)}{match['anchor'] or ''})"

    return _DIAGRAM.sub(lambda match: figure(match["source"]), _LINK.sub(link, markdown))


def figure(source: str) -> str:
    """Draw a Mermaid diagram as an HTML figure without blank lines, which would end it in Markdown."""
    name = hashlib.sha256(f"{mermaidx.__version__}\n{source}".encode()).hexdigest()[:16]
    file = Cache.from_environment(os.environ).root / "diagrams" / f"{name}.svg"
    if not file.exists():
        # Identifiers in the picture must be unique in the page.
        svg = mermaidx.render(source, theme="neutral").svg().replace("my-svg", f"diagram-{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(re.sub(r"\s*\n\s*", " ", svg), encoding="utf-8")
        partial.replace(file)
    return f'<figure class="diagram" markdown="0">{file.read_text(encoding="utf-8")}</figure>'
