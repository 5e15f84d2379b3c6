"""Pages in a real browser."""

from __future__ import annotations

import subprocess
from importlib import resources

import pytest
from tests.report.made import TRAINING, memory, score
from tests.report.reading import Page

from beliefspace.report.page import write_report

pytestmark = pytest.mark.slow

CHROMIUM = [
    "/usr/bin/chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=3000",
    "--enable-logging=stderr",
    "--window-size=500,900",
    "--dump-dom",
]

MEASURE = """
<script>
const root = document.documentElement;
root.dataset.overflow = root.scrollWidth - root.clientWidth;
root.dataset.drawn = [...document.querySelectorAll("svg")].filter(
  (svg) => svg.getBoundingClientRect().height > 200).length;
const line = document.querySelector("svg [style*='stroke: var(--series-1)']");
root.dataset.line = getComputedStyle(line).stroke;
</script>
"""


@pytest.fixture
def opened(tmp_path):
    """Open a page; return its document and what the console said."""

    def open_page(path):
        command = [*CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return Page(done.stdout), console

    return open_page


def test_the_console_is_heard(opened, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<script>console.error('it works')</script>")
    _, console = opened(page)
    assert any("it works" in line for line in console)


def test_a_page_opens_with_every_panel_and_fits_a_phone(make_run, opened):
    result = {"score": score(memory=memory()), "training": TRAINING}
    runs = [
        make_run("a", result=result),
        make_run("b", seed=1, result=result),
        make_run("a-much-longer-name", width=32),
    ]
    path = write_report(runs)
    style = (resources.files("beliefspace.report") / "page.css").read_text(encoding="utf-8")
    assert "max-width: 34rem" in style
    path.write_text(path.read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>"))
    page, console = opened(path)
    assert console == []
    names = ("ladder", "memory", "entropy-by-position", "learning-curve", "recipe")
    assert page.panels == [f"panel-{name}" for name in names]
    assert page.text("panel-ladder", "th").startswith("predictor")
    (root,) = page.find("html")
    assert root["data-overflow"] == "0"
    assert root["data-drawn"] == "3"
    assert root["data-line"] == "rgb(29, 95, 166)"


def test_a_hostile_run_runs_nothing(make_run, opened):
    attack = "</script><script>document.title='owned';console.error('owned')</script>"
    model = "<img src=x onerror=alert(1)>"
    config = f"seed = 0\n[task]\nkind = \"{attack}\"\n[model]\nkind = '{model}'\n"
    page, console = opened(write_report(make_run(config=config)))
    assert console == []
    assert page.text(tag="title") == f"{model} on {attack}"
    assert not page.find("img")
