"""What MkDocs calls while it builds the site: it adds the pages made from code, and leads links to them."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # MkDocs loads this file alone, from anywhere

from tools.site.llms import UNLISTED, Twin, write_twins
from tools.site.pages import PACKAGES, link_names, make_pages

LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
PICTURE = re.compile(r"^!\[([^\]]*)\]\((\S+)\.(svg|webp|png)\)$", re.MULTILINE)

_twins: dict[str, Twin] = {}  # what this build has read, by the page's file
_order: list[str] = []  # the files, in the order of the navigation


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of folders in the navigation."""
    commands = sorted(page.stem for page in Path(config.docs_dir, "cli").glob("*.md"))
    folders = {
        "cli/*": [{f"stepwell {name}": f"cli/{name}.md"} for name in commands],
        "reference/*": [{package: f"reference/{package}.md"} for package in PACKAGES],
    }
    config.nav = _list_folders(config.nav, folders)
    return config


def _list_folders(nav: Any, folders: dict[str, list[dict[str, str]]]) -> Any:
    match nav:
        case dict():
            return {title: _list_folders(entries, folders) for title, entries in nav.items()}
        case list():
            lists = (
                folders[entry] if isinstance(entry, str) and entry in folders else [_list_folders(entry, folders)]
                for entry in nav
            )
            return [entry for entries in lists for entry in entries]
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from code."""
    for address, text in make_pages().items():
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links out of `docs` to the pages made from their targets, and show pictures in the reader's colours."""
    folder = posixpath.dirname(page.file.src_uri)
    if page.file.src_uri == "api.md":
        markdown = link_names(markdown)
    markdown = LINK.sub(lambda found: lead_inside(found[1], folder) + (found[2] or ""), markdown)
    *_, section = UNLISTED, *(str(ancestor.title) for ancestor in page.ancestors)  # the outermost comes last
    _twins[page.file.src_uri] = Twin(page.file.src_uri, str(page.title), section, markdown)
    return PICTURE.sub(lambda found: _show_in_two_colours(found, Path(config.docs_dir, folder)), markdown)


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Remember the order of the pages, for the list of them."""
    _order[:] = [page.file.src_uri for page in nav.pages]
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Write a Markdown twin of every page, and the list of them."""
    unlisted = sorted(_twins.keys() - set(_order))
    write_twins(Path(config.site_dir), [_twins[address] for address in [*_order, *unlisted]])


def lead_inside(target: str, folder: str) -> str:
    """Return the link to the page that shows a file outside of `docs`; other links stay as they are."""
    path = posixpath.normpath(posixpath.join(folder, target))
    if "://" in target or not path.startswith("../"):
        return target
    path = path.removeprefix("../")
    if path.startswith("examples"):
        path = f"{path.removesuffix('.py')}.md" if path.endswith(".py") else "examples/index.md"
    return posixpath.relpath(path.removeprefix("docs/").lower(), folder or ".")


def _show_in_two_colours(found: re.Match[str], folder: Path) -> str:
    words, stem, kind = found.groups()
    if not (folder / f"{stem}-dark.{kind}").exists():
        return found[0]
    return f"![{words}]({stem}.{kind}#only-light)\n![{words}]({stem}-dark.{kind}#only-dark)"
