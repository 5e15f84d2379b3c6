from __future__ import annotations

import base64
import csv
import io
import os
import re
import subprocess
import sys

import pytest
from tests.report.made import LAGS, TRAINING, lag, measure, measures, memory, score
from tests.report.reading import Page, rows

from beliefspace.core import registry
from beliefspace.core.errors import CorruptFile, InvalidInput, MissingExtra
from beliefspace.core.store import Run
from beliefspace.report import page as page_module
from beliefspace.report.page import MARK, script_json, write_figures, write_report
from beliefspace.report.parts import Absent, Cell, Html, Row, Section, Table, Text


def read(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture
def panels(monkeypatch):
    """A registry in which a test can register panels that no other test sees."""
    registry.names("panels")
    for table in ("_entries", "_by_value"):
        monkeypatch.setattr(registry, table, dict(getattr(registry, table)))
    return registry.register


def test_a_finished_run_has_all_its_panels(make_run):
    path = write_report(make_run())
    assert path.name == "report.html"
    page = read(path)
    ids = [f"panel-{n}" for n in ("ladder", "entropy-by-position", "learning-curve", "recipe")]
    assert page.panels == ids
    assert page.text(tag="h1") == "transformer on coin"
    assert "published: the ledger of claims has no value for this very task." in page.text(
        "left-out"
    )
    assert len(page.find("svg")) == 2
    assert not [a for a in page.find("p") if a.get("class") == "notice error"]
    assert "one seed (0)" in page.text()


def test_the_head_tells_distance_worst_place_and_the_next_reference(make_run):
    worst_last = measure(0.02, [0.01, 0.01, 0.04])
    page = read(write_report(make_run(result={"score": score(worst_last), "training": TRAINING})))
    tiles = page.text(tag="dt"), page.text(tag="strong")
    assert tiles[0].startswith(
        "KL(Bayes ‖ model) Worst position, KL Entropy error Next worse reference"
    )
    assert tiles[1] == "0.0200 bits 0.0400 bits 0.0300 bits 0.500 bits"
    assert "95 % [0.0180, 0.0220] at position 4 95 % [0.0270, 0.0330] bag" in page.text(tag="span")


def test_the_head_says_where_every_reference_is_closer(make_run):
    page = read(write_report(make_run(result={"score": score("inf"), "training": TRAINING})))
    assert page.text(tag="strong").startswith("∞ bits")
    assert "every reference is closer" in page.text(tag="span")


def test_the_ladder_has_the_model_first_and_references_by_kl(make_run):
    text = write_report(make_run()).read_text()
    table = rows(text, "ladder")
    assert [row[0].split(" / ")[0] for row in table] == [
        "transformer",
        "bag",
        "uniform",
        "position entropy",
    ]
    assert table[0] == [
        "transformer / one seed (0)",
        "0.0200 / [0.0180, 0.0220]",
        "0.0300 / [0.0270, 0.0330]",
        "0.0400 / [0.0360, 0.0440]",
        "0.0500 / [0.0450, 0.0550]",
        "0.600 / [0.540, 0.660]",
        "0.0200 @ 0",
        "0.00700",
    ]
    assert table[3][1:3] == ["∞", "0"]


def test_a_table_can_be_taken_along_with_full_precision(make_run):
    page = read(write_report(make_run(result={"score": score(1 / 3), "training": TRAINING})))
    (link,) = [a for a in page.find("a") if a["download"] == "ladder-1.csv"]
    content = base64.b64decode(link["href"].partition("base64,")[2]).decode()
    assert content.splitlines()[0].startswith("predictor,KL(Bayes ‖ it) (bits),")
    assert content.splitlines()[1].startswith(f"transformer,{1 / 3},")


def test_seeds_of_one_arm_are_averaged_with_an_interval_over_seeds(make_run):
    runs = [
        make_run(
            f"s{seed}",
            seed=seed,
            steps=1500 + seed,
            result={"score": score(kl), "training": TRAINING},
        )
        for seed, kl in ((0, 0.01), (1, 0.03))
    ]
    text = write_report(runs).read_text()
    table = rows(text, "ladder")
    # Two values: mean 0.02, standard error 0.01, and Student's t at 1 degree of freedom 12.706.
    assert table[0][:2] == ["transformer / mean of 2 seeds", "0.0200 / [−0.107, 0.147]"]
    assert [row[0] for row in table[1:3]] == ["seed 0", "seed 1"]
    assert [row[1].split(" / ")[0] for row in table[1:3]] == ["0.0100", "0.0300"]
    seeds = next(row for row in rows(text, "recipe") if row[0] == "seed")
    assert seeds[1:] == ["0 / one of 2 seeds", "1 / one of 2 seeds"]
    assert "One seed" not in Page(text).text("panel-recipe")


def test_arms_are_marked_as_one_seed_each(make_run):
    runs = [make_run("narrow", width=32), make_run("wide", width=64)]
    path = write_report(runs)
    assert path == runs[0].parent / "report.html"
    page = read(path)
    assert page.text(tag="h1") == "2 runs on coin"
    names = [row[0] for row in rows(page.source, "ladder")[:2]]
    assert names == ["transformer, width 32 / one seed (0)", "transformer, width 64 / one seed (0)"]
    assert "One seed: intervals here are over evaluation sequences" in page.text("panel-recipe")
    assert len(page.json["runs"]) == 2


def test_other_evaluation_sets_are_not_put_into_one_table(make_run):
    other = {"score": score(evaluation_hash="cd" * 32), "training": TRAINING}
    text = write_report([make_run("a"), make_run("b", width=32, result=other)]).read_text()
    assert len(rows(text, "ladder", 0)) == len(rows(text, "ladder", 1)) == 1 + 3
    assert rows(text, "ladder", 1)[0][0].startswith("transformer, width 32")


def test_other_tasks_are_not_put_into_one_figure(make_run):
    page = read(write_report([make_run("a"), make_run("b", task="die")]))
    names = [a["download"] for a in page.find("a") if a["download"].endswith(".svg")]
    assert names.count("learning-curve-2.svg") == 1


def test_targets_and_what_follows_from_them_are_said(make_run):
    sampled = read(write_report(make_run("a")))
    assert "sampled outcomes" in sampled.text("panel-recipe")
    assert "no measure of statistical efficiency" not in sampled.text()
    result = {"score": score(), "training": TRAINING | {"targets": "posterior"}}
    exact = read(write_report(make_run("b", result=result)))
    assert "the exact posterior predictive" in exact.text("panel-recipe")
    assert "no measure of statistical efficiency" in exact.text("panel-recipe")


def test_other_posteriors_have_a_table_where_the_task_has_them(make_run):
    result = {
        "score": score(alternatives={"full prior": measure(0.75)}),
        "training": TRAINING,
    }
    text = write_report(make_run(result=result)).read_text()
    assert rows(text, "ladder", 1) == [
        ["transformer", "0.0200 / [0.0180, 0.0220]", "0.750 / [0.675, 0.825]"]
    ]


def remembering(**others):
    return {"score": score(memory=memory(**others)), "training": TRAINING}


def test_memory_stands_after_the_ladder_where_the_exact_belief_is_a_filter(make_run):
    page = read(write_report(make_run(result=remembering())))
    assert page.panels[:3] == ["panel-ladder", "panel-memory", "panel-entropy-by-position"]
    assert rows(page.source, "memory") == [
        ["transformer / one seed (0)", "4 of 20 / [3, 5]", "3 of 20 / [3, 3]", "1", "3", "500"]
    ]
    assert page.text("panel-memory", "th").startswith("model window-equivalent")
    heads = "uniform restart stationary restart to lag to lag of influence"
    assert heads in page.text("panel-memory", "small")
    captions = page.text("panel-memory")
    assert "over 500 fresh sequences" in captions
    assert "2,048 fresh sequences of evaluation seed 0, on coin (values 4)" in captions
    assert "slope 0.5 to 1.5, correlation at least 0.7" in captions
    assert "both ends of the 95 % interval of the model's KL" in captions
    assert "dashed: that of the exact filter with noise" in captions
    assert "One seed." in captions
    assert "edge:" not in captions
    absent = read(write_report(make_run("no-filter")))
    reason = "memory: no run was scored on a task whose exact belief is a filter."
    assert reason in absent.text("left-out")


def test_memory_of_several_runs_has_one_row_and_one_line_each(make_run):
    wrong = remembering(
        influence=[lag(0, 0.4, -0.3, -0.2, control=0.3)],
        window_equivalent={"uniform": 1},
        window_interval={"uniform": (1, 2)},
    )
    runs = [
        make_run("a", result=remembering()),
        make_run("b", seed=1, result=remembering(sequences=400)),
        make_run("c", width=32, result=wrong),
        make_run("d", width=16),
    ]
    page = read(write_report(runs))
    assert rows(page.source, "memory") == [
        ["transformer, width 64, seed 0", "4 of 20 / [3, 5]", "3 of 20 / [3, 3]", "1", "3", "500"],
        ["transformer, width 64, seed 1", "4 of 20 / [3, 5]", "3 of 20 / [3, 3]", "1", "3", "400"],
        ["transformer, width 32 / one seed (0)", "1 of 20 / [1, 2]", "–", "none", "none", "500"],
    ]
    caption = page.text("panel-memory", "figcaption")
    assert "over 400 or 500 fresh sequences" in caption
    assert caption.count("One line a run.") == 1
    assert [a["download"] for a in page.find("a") if "influence" in a["download"]] == [
        "influence-1.svg"
    ]


def test_memory_on_other_evaluation_sets_is_apart(make_run):
    other = {"score": score(evaluation_hash="cd" * 32, memory=memory()), "training": TRAINING}
    runs = [make_run("a", result=remembering()), make_run("b", width=32, result=other)]
    page = read(write_report(runs))
    names = [a["download"] for a in page.find("a")]
    for name in ("memory-1.csv", "influence-1.svg", "memory-2.csv", "influence-2.svg"):
        assert names.count(name) == 1


def test_slopes_beyond_the_axis_are_explained(make_run):
    noise = [*LAGS, lag(16, 0.0, 900.0, 0.01), lag(32, 1e-11, -900.0, -0.01)]
    caption = read(write_report(make_run(result=remembering(influence=noise)))).text(
        "panel-memory", "figcaption"
    )
    assert "▽ on the lower edge: a slope below −1. △ on the upper edge: a slope above 3." in caption
    assert "▽ on the lower edge: exactly 0." in caption


def test_a_memory_without_a_changed_belief_has_no_figure(make_run):
    page = read(write_report(make_run(result=remembering(influence=[]))))
    assert rows(page.source, "memory")[0][3:5] == ["none", "none"]
    assert not [a for a in page.find("a") if "influence" in a["download"]]


def test_published_values_stand_on_the_page_of_their_task(make_run):
    from beliefspace.core.config import to_toml
    from beliefspace.windtunnel.models.transformer import Transformer
    from beliefspace.windtunnel.recipe import Recipe
    from beliefspace.windtunnel.tasks.bijection import Bijection

    # Another spelling of the task of the ledger, which leaves the number of pairs out.
    config = to_toml(Recipe(Bijection(values=20, pairs=20), Transformer()))
    page = read(write_report(make_run("same", config=config)))
    assert "panel-published" in page.panels
    assert "arXiv 2512.22471" in page.text("panel-published")
    config = to_toml(Recipe(Bijection(values=10), Transformer()))
    page = read(write_report(make_run("other", config=config)))
    assert "panel-published" not in page.panels
    assert re.search(r"it has \d+ values for other settings", page.text("left-out"))


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_a_run_without_a_result_shows_what_there_is(make_run, status):
    page = read(write_report(make_run(status=status)))
    assert page.panels == ["panel-learning-curve", "panel-recipe"]
    assert f"transformer is not finished (status: {status}); it has no final score" in page.text()
    left_out = page.text("left-out")
    assert "ladder: no run has a final score." in left_out
    assert "entropy-by-position: no run has a final score." in left_out


def test_a_run_without_looks_leaves_the_curve_out(make_run):
    page = read(write_report(make_run(looks=())))
    assert "panel-learning-curve" not in page.panels
    assert "learning-curve: no look at a validation set was recorded." in page.text("left-out")


def test_values_that_a_log_axis_cannot_place_are_explained(make_run):
    page = read(write_report(make_run("a", looks=((10, "inf", 0.5), (20, 0.1, 0.0)))))
    caption = page.text("panel-learning-curve", "figcaption")
    assert "▽ on the lower edge: exactly 0. △ on the upper edge: infinite." in caption
    assert "edge:" not in read(write_report(make_run("b"))).text("panel-learning-curve")


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def test_nothing_in_a_run_becomes_markup(make_run):
    word = '$x_1$ _a & "b" \u2028 <!--'
    config = (
        f"seed = 0\n[task]\nkind = '{HOSTILE}'\nword = '{word}'\n[model]\nkind = '_{HOSTILE}'\n"
    )
    hostile = score()
    hostile["ladder"][f"_{HOSTILE}$"] = measures(0.3)
    hostile["alternatives"][HOSTILE] = measure(0.1)
    name = f"{HOSTILE}\x00"
    hostile["memory"] = memory(window_equivalent={name: 3}, window_interval={name: (1, 3)})
    result = {"score": hostile, "training": TRAINING | {"targets": HOSTILE}}
    run = Run.open(make_run("<b onclick=x>&amp;", config=config, result=result))
    page = read(write_report([run, make_run("other", task="<i>")]))
    assert [a.get("type") for a in page.find("script")] == ["application/json"]
    assert {tag for tag, _ in page.elements} & {"img", "b", "i", "iframe"} == set()
    assert not any(name.startswith("on") for _, a in page.elements for name in a)
    assert page.json["runs"][0]["config"] == config
    assert page.json["runs"][0]["name"] == "<b onclick=x>&amp;"
    assert HOSTILE in page.text("panel-ladder")
    assert f"{HOSTILE}\N{REPLACEMENT CHARACTER} restart" in page.text("panel-memory")


def test_json_in_a_script_element_has_no_way_out():
    text = script_json({"a": "</script><!--<script>&\u2028\u2029"})
    assert not set("<>&\u2028\u2029") & set(text)


def test_the_page_loads_nothing(make_run):
    page = read(write_report([make_run("a"), make_run("b", seed=1)]))
    assert "://" not in page.source
    (policy,) = [a for a in page.find("meta") if "http-equiv" in a]
    assert policy["content"].startswith("default-src 'none';")
    for tag, attributes in page.elements:
        assert "src" not in attributes
        for name in ("href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert "url(" not in page.source.split("</style>")[0]


def test_identifiers_are_unique_and_every_reference_resolves(make_run):
    page = read(write_report([make_run("a"), make_run("b", width=32), make_run("c", task="die")]))
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]+)\)", page.source))
    used |= {a["xlink:href"][1:] for a in page.find("use")}
    assert used
    assert used <= set(ids)


ONCE_MORE = """
import sys
from beliefspace.report.page import write_figures, write_report
write_report(sys.argv[1], sys.argv[2])
assert "torch" not in sys.modules
"""


def test_the_same_run_gives_the_same_bytes_without_torch(make_run, tmp_path):
    run = make_run()
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first
    other = tmp_path / "new" / "folder" / "page.html"
    done = subprocess.run(
        [sys.executable, "-c", ONCE_MORE, run, other],
        env=os.environ | {"PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert other.read_bytes() == first


def test_a_panel_that_fails_shows_its_error_in_its_place(make_run, panels):
    @panels("panels", "broken")
    def broken(context):
        raise ValueError("no <b>luck</b>")

    @panels("panels", "wrong")
    def wrong(context):
        return "<p>hello</p>"

    @panels("panels", "ragged")
    def ragged(context):
        table = Table("t", (Cell("a"), Cell("b")), (Row((Cell("1"),)),), "caption")
        return Section("Ragged", (table,))

    page = read(write_report(make_run()))
    assert "ValueError: no <b>luck</b>" in page.text("panel-broken")
    assert not page.find("b")
    assert "a Section or an Absent; got str" in page.text("panel-wrong")
    assert "1 cells for 2 columns" in page.text("panel-ragged")
    assert "panel-ladder" in page.panels
    assert page.panels[-1] == "panel-recipe"


def test_a_panel_of_ones_own_stands_before_the_recipe(make_run, panels):
    @panels("panels", "mine")
    def mine(context):
        return Section("Mine & yours", (Text("a < b"), Html("<em>as it is</em>")))

    @panels("panels", "none-of-mine")
    def none_of_mine(context):
        return Absent("there is <nothing>")

    page = read(write_report(make_run()))
    assert page.panels[-2:] == ["panel-mine", "panel-recipe"]
    assert page.text("panel-mine", "h2") == "Mine & yours"
    assert page.text("panel-mine", "em") == "as it is"
    assert "none-of-mine: there is <nothing>." in page.text("left-out")


def test_only_a_report_is_replaced(make_run, tmp_path):
    run = make_run()
    other = tmp_path / "paper.html"
    other.write_text("<p>mine</p>")
    with pytest.raises(InvalidInput, match=r"paper\.html exists and is not a beliefspace report"):
        write_report(run, other)
    assert other.read_text() == "<p>mine</p>"
    with pytest.raises(InvalidInput, match="is a directory"):
        write_report(run, tmp_path)
    other.unlink()
    write_report(run, other)
    assert write_report([run, make_run("second", seed=1)], other) == other
    assert read(other).text(tag="h1") == "2 runs on coin"


def test_the_runs_own_page_is_replaced_whatever_it_is(make_run):
    run = make_run()
    (run / "report.html").write_text("")
    assert MARK in write_report(run).read_text()


def test_an_old_page_survives_a_failure(make_run, monkeypatch):
    run = make_run()
    before = write_report(run).read_bytes()

    def fail(context):
        raise RuntimeError("half way")

    monkeypatch.setattr(page_module, "render", fail)
    with pytest.raises(RuntimeError, match="half way"):
        write_report(run)
    assert (run / "report.html").read_bytes() == before
    assert not list(run.glob(".*"))


def test_what_cannot_be_a_report_is_said(make_run):
    run = make_run("first")
    with pytest.raises(InvalidInput, match="a report needs a run; got none"):
        write_report([])
    with pytest.raises(InvalidInput, match="given twice"):
        write_report([run, str(run)])
    with pytest.raises(InvalidInput, match="in different directories"):
        write_report([run, make_run("second", parent="elsewhere")])
    with pytest.raises(InvalidInput, match=r"nearest in .*: first"):
        write_report(run.with_name("frist"))


def test_a_link_to_itself_is_replaced_by_the_page(make_run, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert MARK in write_report(make_run(), tmp_path / "loop").read_text()


def test_a_damaged_result_is_named(make_run):
    broken = score()
    del broken["ladder"]["bag"]["accuracy"]
    with pytest.raises(CorruptFile, match=r"result\.json lacks 'accuracy'"):
        write_report(make_run("a", result={"score": broken, "training": TRAINING}))
    with pytest.raises(CorruptFile, match=r"result\.json .*expected a number; got 'much'"):
        write_report(make_run("b", result={"score": score(kl="much"), "training": TRAINING}))
    with pytest.raises(CorruptFile, match=r"config\.toml is not valid TOML"):
        write_report(make_run("c", config="a = = 1"))


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_without_a_package_the_line_that_installs_it_is_given(
    make_run, monkeypatch, tmp_path, package
):
    run = make_run()
    monkeypatch.setitem(sys.modules, package, None)
    for write in (write_report, lambda run: write_figures(run, tmp_path / "figures")):
        with pytest.raises(MissingExtra, match=rf'needs {package}.*"beliefspace\[report\]"'):
            write(run)
    assert not (run / "report.html").exists()
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_no_text_in_a_csv_file_is_a_formula(start):
    table = Table(
        "t",
        (Cell(f"{start}a"), Cell("b", "bits")),
        (Row((Cell(f"{start}1+1"), Cell("-2", value=-2.5))), Row((Cell("a=1"), Cell("x", "y")))),
        "caption",
    )
    rows = list(csv.reader(io.StringIO(table.csv)))
    assert rows == [
        [f"'{start}a", "b (bits)"],
        [f"'{start}1+1", "-2.5"],
        ["a=1", "x"],
    ]


def test_figures_are_files_for_a_paper_and_the_same_every_time(make_run, tmp_path):
    run = make_run(result=remembering())
    written = write_figures(run, tmp_path / "figures")
    names = {path.name for path in written}
    expected = {
        f"{stem}.{end}"
        for stem in ("learning-curve-1", "entropy-by-position-1", "influence-1")
        for end in ("svg", "pdf")
    }
    assert expected <= names
    before = {path.name: path.read_bytes() for path in written}
    assert before["learning-curve-1.pdf"].startswith(b"%PDF")
    assert b"<svg" in before["learning-curve-1.svg"]
    write_figures(run, tmp_path / "figures")
    assert before == {path.name: path.read_bytes() for path in written}
