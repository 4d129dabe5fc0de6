"""The site that `./dev site` makes of docs/: it needs no network, and its links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from conftest import HANG, ROOT

bs4 = pytest.importorskip("bs4")
pytest.importorskip("sphinx")

SITE = ROOT / "build" / "site"
PARTS = ("Tutorial", "How-to by framework", "How-to by task", "Reference", "Explanation", "Change")


def sphinx(source: Path, out: Path, **variables: str) -> subprocess.CompletedProcess:
    command = [
        sys.executable, "-m", "sphinx", "--quiet", "--fresh-env", "--fail-on-warning",
        "--doctree-dir", str(out / "cache"), "-c", str(ROOT / "docs" / "site"),
        str(source), str(out / "html"),
    ]  # fmt: skip
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=HANG, env=os.environ | variables
    )


@pytest.fixture(scope="module")
def pages() -> dict[Path, bs4.BeautifulSoup]:
    environment = os.environ | {"TTRACE_NO_APT": "1"}
    environment.pop("TTRACE_SITE_SOURCES", None)
    result = subprocess.run(
        [ROOT / "dev", "site"], capture_output=True, text=True, check=False, timeout=HANG, env=environment
    )
    assert result.returncode == 0, result.stderr
    found = {
        path: bs4.BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for path in SITE.rglob("*.html")
    }
    assert len(found) > 50
    return found


def targets(page: bs4.BeautifulSoup) -> Iterator[tuple[str, str]]:
    """Tag and address of everything that a page refers to."""
    for tag in page.find_all(True):
        for attribute in ("href", "src", "data", "action", "poster"):
            if tag.get(attribute):
                yield tag.name, tag[attribute]


def test_every_page_of_the_documentation_has_a_page(pages):
    for source in [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/decisions/*.md"),
        *ROOT.glob("docs/figures/*.md"),
        *ROOT.glob("examples/*/README.md"),
        ROOT / "tests" / "first_contact" / "README.md",
    ]:
        made = SITE / source.relative_to(ROOT).with_suffix(".html")
        heading = re.search(r"^# (.*)$", source.read_text(encoding="utf-8"), re.MULTILINE)[1].replace("`", "")
        assert heading.split("[")[0] in pages[made].h1.get_text(), made


def test_readme_is_the_front_page_with_the_parts_that_it_names(pages):
    front = pages[SITE / "index.html"]
    assert "TTrace" in front.h1.get_text()
    sidebar = front.find(class_="sidebar-tree")
    captions = [caption.get_text().strip() for caption in sidebar.find_all(class_="caption")]
    assert captions[: len(PARTS)] == list(PARTS)
    linked = {link["href"] for link in sidebar.find_all("a")}
    assert {"docs/tutorial.html", "docs/verdict.html", "CONTRIBUTING.html"} <= linked


def test_links_lead_to_files_and_headings_of_the_site(pages):
    names = {
        page: {tag[key] for tag in html.find_all(True) for key in ("id", "name") if tag.get(key)}
        for page, html in pages.items()
    }
    wrong, count = [], 0
    for page, html in pages.items():
        for _, target in targets(html):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not path.is_file() or (
                parts.fragment and path in names and unquote(parts.fragment) not in names[path]
            ):
                wrong.append(f"{page.relative_to(SITE)}: {target}")
    assert count > 3000 and not wrong, wrong[:20]


def test_a_link_to_a_source_file_leads_to_a_copy(pages):
    [link] = [
        a
        for a in pages[SITE / "docs" / "tutorial.html"].find_all("a")
        if a.get_text() == "examples/tutorial/train.py"
    ]
    copy = (SITE / "docs" / unquote(link["href"])).resolve()
    assert copy.read_bytes() == (ROOT / "examples" / "tutorial" / "train.py").read_bytes()


def test_pages_load_nothing_from_other_hosts(pages):
    """Links that a reader clicks may lead anywhere; what a browser loads by itself may not."""
    for page, html in pages.items():
        for tag, target in targets(html):
            assert tag == "a" or not re.match(r"(https?:)?//", target), f"{page} loads {target}"
        for style in html.find_all(style=True):
            assert not re.search(r"url\(|//", style["style"])
    for sheet in SITE.rglob("*.css"):
        loaded = re.findall(
            r"url\(\s*['\"]?([^'\")]*)|@import\s+['\"]([^'\"]*)", sheet.read_text(encoding="utf-8")
        )
        assert not [address for pair in loaded for address in pair if re.match(r"(https?:)?//", address)], (
            sheet
        )


@pytest.mark.skipif(
    not shutil.which("chromium") or not shutil.which("chromedriver"), reason="there is no chromium"
)
def test_a_browser_asks_no_host_and_finds_what_is_searched(pages):
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.get((SITE / "index.html").as_uri())
        driver.get((SITE / "search.html").as_uri() + "?q=zigzag+placement")
        driver.get((SITE / "search.html").as_uri() + "?q=doctor")
        found = WebDriverWait(driver, 30).until(
            lambda d: d.find_elements(By.CSS_SELECTOR, "#search-results li a")
        )
        assert any("commands.html" in link.get_attribute("href") for link in found)
        messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    finally:
        driver.quit()
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert any(url.endswith("searchindex.js") for url in asked)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_a_fork_says_where_its_files_are(tmp_path):
    result = sphinx(ROOT, tmp_path, TTRACE_SITE_SOURCES="https://host.invalid/fork/blob/main/")
    assert result.returncode == 0, result.stderr
    page = bs4.BeautifulSoup(
        (tmp_path / "html" / "docs" / "frameworks.html").read_text(encoding="utf-8"), "html.parser"
    )
    links = {link["href"] for link in page.find_all("a")}
    assert "https://host.invalid/fork/blob/main/tests/frameworks/hf" in links
    assert not (tmp_path / "html" / "_downloads").exists()


def test_a_link_that_leads_nowhere_is_an_error(tmp_path):
    tree = tmp_path / "tree"
    not_sources = shutil.ignore_patterns(".git", ".venv", "build", "lib", "runs", "__pycache__")
    shutil.copytree(ROOT, tree, ignore=not_sources)
    with (tree / "README.md").open("a", encoding="utf-8") as readme:
        readme.write("\nRead [this](docs/gone.md).\n")
    result = sphinx(tree, tmp_path / "out")
    assert result.returncode != 0
    assert "docs/gone.md" in result.stderr and result.stderr.count("WARNING") == 1, result.stderr
