from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from beliefspace.report.figures import (
    FAINT,
    MUTED,
    SERIES,
    THEME,
    Curve,
    Influence,
    Profile,
    edge_note,
    entropy_by_position,
    influence_by_lag,
    learning_curves,
    slope_note,
)
from beliefspace.report.svg import draw

INFINITY = float("inf")


def curve(arm="a", kl=(1.0, 0.1, 0.01), error=(0.5, 0.2, 0.03)):
    return Curve(arm, (100, 1000, 10_000), kl, error)


def lines(axes, colour):
    return [line for line in axes.get_lines() if line.get_color() == colour]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_curves_are_the_data_on_log_axes():
    above, below = learning_curves([curve()], {}).axes
    assert above.get_xscale() == above.get_yscale() == below.get_yscale() == "log"
    (kl,), (error,) = lines(above, SERIES[0]), lines(below, SERIES[0])
    np.testing.assert_array_equal(kl.get_xydata(), [[100, 1.0], [1000, 0.1], [10_000, 0.01]])
    np.testing.assert_array_equal(error.get_ydata(), [0.5, 0.2, 0.03])
    assert above.get_legend() is None


def test_zero_and_infinity_go_to_the_edges_and_nothing_else_moves():
    above, _ = learning_curves([curve(kl=(INFINITY, 0.1, 0.0))], {}).axes
    line, zero, infinite = lines(above, SERIES[0])
    np.testing.assert_array_equal(line.get_ydata(), [np.nan, 0.1, np.nan])
    assert (zero.get_xdata(), zero.get_ydata(), zero.get_marker()) == ([10_000], [0.0], "v")
    assert (infinite.get_xdata(), infinite.get_ydata(), infinite.get_marker()) == (
        [100],
        [1.0],
        "^",
    )
    bottom, top = above.get_ylim()
    assert bottom < 0.1 < top < INFINITY


def test_axes_hold_when_nothing_can_be_placed():
    figure = learning_curves([curve(kl=(0.0, 0.0, 0.0))], {"uniform": 0.1})
    assert draw(figure, "n", "t").inline.startswith("<svg")


def test_runs_of_one_arm_share_a_colour_and_a_line_of_the_legend():
    above, _ = learning_curves([curve("a"), curve("b"), curve("a")], {}).axes
    assert [len(lines(above, colour)) for colour in SERIES[:3]] == [2, 1, 0]
    assert legend(above) == ["a (2 runs)", "b"]


def test_more_arms_than_colours_differ_in_their_dashes():
    count = len(SERIES) + 1
    above, _ = learning_curves([curve(str(i)) for i in range(count)], {}).axes
    first, again = lines(above, SERIES[0])
    assert first.get_linestyle() == "-"
    assert again.get_linestyle() == "--"


def test_references_inside_the_axes_are_named():
    references = {"inside": 0.5, "as good as the same": 0.49, "far": 50.0, "infinite": INFINITY}
    above, _ = learning_curves([curve()], references).axes
    assert [text.get_text() for text in above.texts] == ["inside"]
    levels = [line.get_ydata()[0] for line in above.get_lines()[1:]]
    assert levels == [0.5, 0.49]


def test_profiles_are_the_data():
    profile = Profile("model", (2.0, 1.0, 0.1), (0.1, 0.0, 0.2), (0.3, 0.4, 0.5))
    above, below = entropy_by_position((0, 2, 4), (2.0, 1.1, 0.0), [profile], (2.0, 1.1, 0.0)).axes
    assert legend(above) == ["Bayes", "model", "position entropy"]
    (model,) = lines(above, SERIES[0])
    np.testing.assert_array_equal(model.get_xydata(), [[0, 2.0], [2, 1.0], [4, 0.1]])
    kl, error, zero = lines(below, SERIES[0])
    np.testing.assert_array_equal(kl.get_ydata(), [0.3, 0.4, 0.5])
    np.testing.assert_array_equal(error.get_ydata(), [0.1, np.nan, 0.2])
    assert zero.get_xdata() == [2]
    assert legend(below) == ["KL(Bayes ‖ model)", "|entropy difference|"]


def test_negative_entropies_of_densities_are_inside():
    profile = Profile("model", (0.5, -3.0), (0.1, 0.1), (0.3, 0.4))
    above, _ = entropy_by_position((0, 1), (0.4, -2.9), [profile]).axes
    assert above.get_ylim()[0] < -3.0
    assert legend(above) == ["Bayes", "model"]


def influence(arm="a", slope=(1.0, 0.8, 0.1), change=(0.4, 0.01, 1e-5)):
    low, high = np.subtract(slope, 0.1), np.add(slope, 0.2)
    correlations = (0.99, 0.9, 0.2), (0.98, 0.7, 0.4), (0.0, 0.1, -0.1)
    return Influence(arm, (0, 1, 4), change, slope, low, high, *correlations)


def test_influence_is_the_data_with_its_interval_its_control_and_its_null():
    above, middle, below = influence_by_lag([influence()]).axes
    (slope,) = lines(above, SERIES[0])
    np.testing.assert_array_equal(slope.get_xydata(), [[0, 1.0], [1, 0.8], [4, 0.1]])
    (band,) = above.collections
    corners = {tuple(corner) for corner in np.round(band.get_paths()[0].vertices, 12)}
    assert corners == {(0, 0.9), (1, 0.7), (4, 0.0), (0, 1.2), (1, 1.0), (4, 0.3)}
    (correlation,), (null,) = lines(middle, SERIES[0]), lines(middle, FAINT)
    (control,) = lines(middle, MUTED)
    np.testing.assert_array_equal(correlation.get_ydata(), [0.99, 0.9, 0.2])
    np.testing.assert_array_equal(null.get_ydata(), [0.0, 0.1, -0.1])
    np.testing.assert_array_equal(control.get_ydata(), [0.98, 0.7, 0.4])
    assert len({line.get_linestyle() for line in (correlation, control)}) == 2
    (change,) = lines(below, MUTED)
    np.testing.assert_array_equal(change.get_ydata(), [0.4, 0.01, 1e-5])
    assert (above.get_yscale(), below.get_yscale()) == ("linear", "log")
    assert above.get_legend() is None
    assert legend(middle) == [
        "with the exact change",
        "of a filter with noise",
        "with that of another sequence",
    ]
    drawn = [line._dash_pattern for line in middle.get_legend().get_lines()]
    assert drawn == [line._dash_pattern for line in (correlation, control, null)]


def test_where_a_lag_counts_as_right_is_grey():
    above, middle, _ = influence_by_lag([influence()]).axes
    spans = [[(patch.get_y(), patch.get_y() + patch.get_height())] for patch in above.patches]
    assert spans == [[(0.5, 1.5)]]
    (patch,) = middle.patches
    assert (patch.get_y(), patch.get_y() + patch.get_height()) == pytest.approx((0.7, 1.0))


def test_runs_of_influence_share_the_colour_of_their_arm():
    runs = [influence("a"), influence("b"), influence("a")]
    above, middle, _ = influence_by_lag(runs).axes
    assert legend(above) == ["a (2 runs)", "b"]
    for axes in (above, middle):
        assert [len(lines(axes, colour)) for colour in SERIES[:3]] == [2, 1, 0]


def test_slopes_of_noise_go_to_the_edges_and_leave_the_others_readable():
    above, _, _ = influence_by_lag([influence(slope=(1.0, 400.0, -90.0))]).axes
    line, low, high = lines(above, SERIES[0])
    np.testing.assert_array_equal(line.get_ydata(), [1.0, 400.0, -90.0])
    assert (low.get_xdata(), low.get_ydata(), low.get_marker()) == ([4], [0.0], "v")
    assert (high.get_xdata(), high.get_ydata(), high.get_marker()) == ([1], [1.0], "^")
    assert above.get_ylim() == (-1.0, 3.0)
    assert influence_by_lag([influence()]).axes[0].get_ylim() == pytest.approx((-0.1, 1.7))


def test_a_negative_correlation_is_inside():
    one = influence()
    wrong = Influence(
        "a", one.lags, *[(0.1, 0.1, 0.1)] * 4, (-0.9, 0.5, 0.2), *[(0.0, 0.0, 0.0)] * 2
    )
    assert influence_by_lag([wrong]).axes[1].get_ylim()[0] < -0.9


@pytest.mark.parametrize("count", [0, 3])
def test_influence_is_drawn_also_without_a_lag_or_a_change(count):
    values = (0.0,) * count
    figure = influence_by_lag([Influence("a", range(count), *[values] * 7), influence("b")])
    assert draw(figure, "n", "t").inline.startswith("<svg")


@pytest.mark.parametrize("name", ["_hidden", "$x_1$", "a $b", "<b>&\"'", "名前", "\\frac"])
def test_any_name_is_drawn_as_it_is(name):
    drawn = draw(learning_curves([curve(name), curve("b")], {name: 0.5}), "figure", name)
    assert name in {(e.text or "").strip() for e in ElementTree.fromstring(drawn.file).iter()}
    page = ElementTree.fromstring(drawn.inline.replace("xlink:", ""))
    assert page.get("aria-label") == name
    assert name in {(element.text or "").strip() for element in page.iter()}


def test_a_file_is_whole_and_for_white_paper_and_the_page_has_its_own_colours():
    drawn = draw(learning_curves([curve("a"), curve("b")], {"r": 0.5}), "figure", "title")
    assert drawn.file.startswith('<?xml version="1.0" encoding="UTF-8"?>')
    root = ElementTree.fromstring(drawn.file)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("width", "").endswith("pt")
    assert "var(" not in drawn.file
    assert "<style" not in drawn.file + drawn.inline
    assert all(colour not in drawn.inline for colour in THEME)
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", drawn.inline))
    assert {"series-1", "series-2", "ink", "muted", "faint", "grid"} == used
    assert "://" not in drawn.inline


def test_the_page_has_every_colour_for_light_and_for_dark():
    from importlib import resources

    style = (resources.files("beliefspace.report") / "page.css").read_text(encoding="utf-8")
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for colour, variable in THEME.items():
        assert f"--{variable}: {colour};" in light
        assert f"--{variable}: " in dark


def test_edge_notes():
    assert edge_note([0.1, 2.0]) == ""
    assert edge_note([0.0]) == " ▽ on the lower edge: exactly 0."
    assert edge_note([INFINITY, 1.0]) == " △ on the upper edge: infinite."


def test_slope_notes():
    assert slope_note([]) == slope_note([-1.0, 3.0]) == ""
    assert slope_note([-1.5]) == " ▽ on the lower edge: a slope below −1."
    assert slope_note([3.5, 0.0]) == " △ on the upper edge: a slope above 3."
    both = " ▽ on the lower edge: a slope below −1. △ on the upper edge: a slope above 3."
    assert slope_note([3.5, -2.0]) == both
