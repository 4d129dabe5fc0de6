"""How Sphinx makes a site of the pages that GitHub shows (`./dev site`).

The pages stay as they are. What GitHub's way to show them has and Sphinx's has not is added here: README.md
is the front page, and links lead to files and folders that are no pages.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

HERE = Path(__file__).parent
FRONT = "README"
# Where a fork's files are shown: https://HOST/OWNER/NAME/blob/BRANCH. Nothing is assumed of it.
SOURCES = os.environ.get("TTRACE_SITE_SOURCES", "").rstrip("/")

project = html_title = "TTrace"
root_doc = FRONT
include_patterns = ["*.md", "docs/**.md", "examples/**.md", "reference/**.md", "tests/first_contact/README.md"]
exclude_patterns = ["docs/site/**"]

extensions = ["myst_parser"]
myst_heading_anchors = 6
# GitHub has no such syntax, so that in a page these characters stand for themselves.
myst_disable_syntax = ["myst_role", "myst_line_comment", "myst_block_break", "myst_target"]
highlight_language = "none"
smartquotes = False  # which would make one dash of the two of an option

html_theme = "furo"
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_use_index = False


class SiteBuilder(StandaloneHTMLBuilder):
    """Writes README.md as index.html, which servers show first."""

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        return super().get_target_uri("index" if docname == FRONT else docname, typ)

    def get_output_path(self, page_name: str, /) -> Path:
        return super().get_output_path("index" if page_name == FRONT else page_name)


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """GitHub needs none, so that README.md has none."""
    if docname == FRONT:
        source[0] += "\n" + (HERE / "navigation.md").read_text(encoding="utf-8")


def link_files(app: Sphinx, doctree: nodes.document) -> None:
    """Leads links to files and folders that are no pages to SOURCES. Without it, the site has a copy of such
    a file, and a link to a folder becomes text."""
    folders = [node for node in doctree.findall(addnodes.pending_xref) if node.get("reftype") == "myst"]
    for node in [*doctree.findall(addnodes.download_reference), *folders]:
        path = Path(app.env.relfn2path(node["reftarget"].partition("#")[0], app.env.docname)[1])
        is_folder = path.is_dir() and node.get("refdomain") is None and not node["reftarget"].startswith("#")
        if SOURCES and (is_folder or isinstance(node, addnodes.download_reference)):
            address = f"{SOURCES}/{quote(path.relative_to(app.srcdir).as_posix())}"
            node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=False))
        elif is_folder:
            node.replace_self(node.children)


def setup(app: Sphinx) -> None:
    app.add_builder(SiteBuilder, override=True)
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", link_files, priority=400)  # before Sphinx collects which files to copy
