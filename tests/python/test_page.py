"""The page that `--format html=FILE` writes, in a browser without a window."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import ttrace
from conftest import HANG, PROGRAM, ROOT, python, torchrun

selenium = pytest.importorskip("selenium")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
    pytest.skip("chromium and its driver are not installed", allow_module_level=True)

FRAMEWORKS = ROOT / "tests" / "frameworks"
TRAIN = FRAMEWORKS / "functional" / "train.py"
MANY = 100_000


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1600"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Folder of a check in which rank 1 rotates by other positions, with page and JSON."""
    folder = tmp_path_factory.mktemp("page")
    bug = f"{FRAMEWORKS / 'with_bug.py'} functional rope-shifted-on-rank-1 {TRAIN} --ddp"
    command = [
        PROGRAM, "check", "--steps", "0:1", "-o", str(folder / "run"),
        "--reference", python(str(TRAIN)), "--candidate", torchrun(2, bug),
        f"--format=html={folder / 'page.html'}", f"--format=json={folder / 'report.json'}",
    ]  # fmt: skip
    subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    return folder


@pytest.fixture
def report(run) -> dict:
    return json.loads((run / "report.json").read_text())


def opened(browser, page: Path):
    browser.get(page.as_uri())
    WebDriverWait(browser, 30).until(lambda b: b.execute_script("return document.documentElement.dataset.ready"))
    return browser


@pytest.fixture
def page(browser, run):
    return opened(browser, run / "page.html")


def rows(page) -> list[list[str]]:
    """Texts of the rows of the table that are drawn."""
    return page.execute_script(
        "return [...document.querySelectorAll('#table tbody tr')].map(r => [...r.cells].map(c => c.textContent.trim()))"
    )


def count(page) -> int:
    return int(page.find_element(By.ID, "count").text.split()[0])


def test_the_top_names_verdict_and_first_divergence(page, report):
    first = report["first_divergence"]
    assert page.find_element(By.TAG_NAME, "h1").text == "TTrace: DIVERGED"
    assert page.find_element(By.ID, "first-id").text == first["id"]
    facts = page.find_element(By.ID, "first-facts").text
    assert first["source"] in facts and first["where_to_look"] in facts


def test_nothing_is_asked_of_the_network(browser, run):
    browser.get_log("performance")
    opened(browser, run / "page.html")
    urls = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            urls.append(message["params"]["request"]["url"])
    assert urls, "the browser logs what it loads"
    assert all(url.startswith(("file://", "data:")) for url in urls), urls


def test_the_page_has_no_errors(browser, run):
    browser.get_log("browser")
    opened(browser, run / "page.html")
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_columns_sort_both_ways(page):
    button = page.find_element(By.CSS_SELECTOR, "th[data-column='norm'] button")
    button.click()
    norms = [float(row[6]) for row in rows(page) if row[6] != "-"]
    assert norms == sorted(norms, reverse=True) and len(norms) > 20
    assert page.find_element(By.CSS_SELECTOR, "th[data-column='norm']").get_attribute("aria-sort") == "descending"
    button.click()
    ascending = [float(row[6]) for row in rows(page) if row[6] != "-"]
    assert ascending == sorted(ascending)


def test_filters_leave_what_was_asked_for(page, report):
    tensors = report["tensors"]
    assert count(page) == len(tensors)
    page.find_element(By.ID, "filter-findings").click()
    assert count(page) == sum(tensor["finding"] for tensor in tensors)
    page.find_element(By.ID, "filter-reset").click()
    WebDriverWait(page, 5).until(lambda b: count(b) == len(tensors))
    page.find_element(By.ID, "filter-text").send_keys("mlp")
    assert count(page) == sum("mlp" in tensor["id"] for tensor in tensors)
    Select(page.find_element(By.ID, "filter-kind")).select_by_visible_text("grad output")
    assert count(page) == sum("mlp" in tensor["id"] and "/grad_output/" in tensor["id"] for tensor in tensors)


def test_a_row_opens_its_explanation(page, report):
    first = report["first_divergence"]["id"]
    page.find_element(By.ID, "filter-text").send_keys(first)
    page.find_element(By.CSS_SELECTOR, "#table tbody button").click()
    dialog = page.find_element(By.ID, "explain")
    assert dialog.get_attribute("open") is not None
    assert page.find_element(By.ID, "explain-id").text == first
    assert "bounds (* marks the one that decides)" in page.find_element(By.ID, "explain-text").text
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.ESCAPE)
    assert dialog.get_attribute("open") is None


def test_what_is_equal_in_every_bit_is_not_called_not_judged(page, report):
    """Symptom: tokens that were equal were grey in the tree of modules."""
    judged = {t["id"].split("/")[3] for t in report["tensors"] if "/data/" in t["id"] and t["status"] == "within"}
    assert judged
    for name in judged:
        item = page.find_element(By.CSS_SELECTOR, f"#tree [aria-label^='{name}:']")
        assert item.get_attribute("aria-label").startswith(f"{name}: at most ")


def test_a_module_opens_and_filters_the_table_from_the_keyboard(page, report):
    closed = page.find_element(By.CSS_SELECTOR, "#tree details:not([open])")
    closed.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    WebDriverWait(page, 5).until(lambda _: closed.find_elements(By.TAG_NAME, "li"))
    closed.find_element(By.CSS_SELECTOR, "summary button").send_keys(Keys.ENTER)
    pattern = re.compile(rf"/{re.escape(closed.get_attribute('data-path'))}[./]")
    assert count(page) == sum(bool(pattern.search(tensor["id"])) for tensor in report["tensors"]) > 0


def test_the_tree_is_open_as_far_as_the_first_divergence(page, report):
    path = report["first_divergence"]["id"].split("/")[3]
    assert [item.get_attribute("data-path") for item in page.find_elements(By.CSS_SELECTOR, "#tree details[open]")] == [
        path[: match.start()] for match in re.finditer(r"\.", path)
    ]


def test_a_row_explains_itself_from_the_keyboard(page):
    button = page.find_element(By.CSS_SELECTOR, "#table tbody tr:nth-child(2) button")
    name = button.text
    button.send_keys(Keys.ENTER)
    assert page.find_element(By.ID, "explain-id").text == name


def test_the_grid_shows_which_rank_is_wrong(page, report):
    ranks = report["close_look"]["ranks"]
    assert [rank["error"] > 0 for rank in ranks] == [False, True]
    assert "rank 0: equal" in page.find_element(By.ID, "rank-grid").text


def test_worst_heads_are_listed_where_the_model_says_how_many_there_are(browser, run, report, tmp_path):
    shutil.copytree(run / "run", tmp_path / "run")
    features = ttrace.open(run / "run" / "candidate")[report["first_divergence"]["id"]].shape[-1]
    for file in (tmp_path / "run").rglob("manifest.json"):
        manifest = json.loads(file.read_text())
        manifest["model"] |= {"hidden": str(features), "heads": "2"}
        manifest.pop("digest")  # it is changed on purpose
        file.write_text(json.dumps(manifest))
    files = {name: tmp_path / f"report.{name}" for name in ("html", "json", "text")}
    options = [f"--format={name}={file}" for name, file in files.items()]
    command = [PROGRAM, "diff", str(tmp_path / "run"), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert result.returncode == 1, result.stderr
    parts = [part["where"] for part in json.loads(files["json"].read_text())["close_look"]["parts"]]
    heads = parts[:2]
    assert sorted(heads) == ["head 0", "head 1"]
    assert not any(part["where"].startswith("head") for part in report["close_look"]["parts"]), "no model, no heads"
    assert f"heads of largest error: {heads[0]} (" in files["text"].read_text()
    cells = opened(browser, files["html"]).find_elements(By.CSS_SELECTOR, "#part-table td:first-child")
    assert [cell.text for cell in cells] == parts


def test_charts_are_drawn(page):
    for name in ("heat", "forward", "backward"):
        drawn = page.execute_script(
            "const c = document.getElementById(arguments[0]);"
            "return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)",
            name,
        )
        assert drawn, name


def test_colours_switch(page):
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = page.execute_script(paper)
    page.find_element(By.ID, "theme").click()
    assert page.execute_script(paper) != before


def edited(text: str, edit: Callable[[dict], None]) -> str:
    """The page with other data."""
    start = text.index('id="report">') + len('id="report">')
    end = text.index("</script>", start)
    data = json.loads(text[start:end])
    edit(data)
    return text[:start] + json.dumps(data) + text[end:]


def test_the_facts_of_the_first_divergence_are_shown_with_their_labels(browser, run, tmp_path):
    # Symptom: the page never showed the operator that a zoom had named, because it read a field that no report has.
    operator = {"key": "operator", "label": "operator", "text": "aten::mm at model.py:88", "depth": "answer", "number": None}
    zoomed = tmp_path / "zoomed.html"
    text = (run / "page.html").read_text()
    zoomed.write_text(edited(text, lambda data: data["report"]["first_divergence"]["facts"].append(operator)))
    facts = opened(browser, zoomed).find_element(By.ID, "first-facts").text
    assert "operator" in facts and "aten::mm at model.py:88" in facts


def grown(text: str, many: int) -> str:
    """The page with its tensors repeated, in further micro-batches, until there are so many."""

    def grow(data: dict) -> None:
        columns = data["tensors"]
        own = len(columns["id"])
        for name, values in columns.items():
            columns[name] = [values[i % own] for i in range(many)]
        columns["id"] = [re.sub(r"^s0/(m\d+/)?", f"s0/m{i // own}/", columns["id"][i]) for i in range(many)]

    return edited(text, grow)


def test_a_hundred_thousand_tensors_sort_and_filter(browser, run, tmp_path):
    big = tmp_path / "big.html"
    big.write_text(grown((run / "page.html").read_text(), MANY))
    page = opened(browser, big)
    assert count(page) == MANY
    drawn = len(rows(page))
    assert drawn <= 500, "so that the page is quick"
    page.find_element(By.ID, "more").click()
    assert len(rows(page)) == 2 * drawn
    page.find_element(By.CSS_SELECTOR, "th[data-column='share'] button").click()
    shares = [row[3] for row in rows(page)]
    assert shares[0] == page.execute_script("return short(shareOf(shown.indices[0]))")
    page.find_element(By.ID, "filter-text").send_keys("/m7/")
    assert 0 < count(page) < MANY
