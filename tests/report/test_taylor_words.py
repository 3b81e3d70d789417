import math

from gradcheck.report.plots import taylor_says


def test_what_is_missing_from_a_directional_derivative_is_told_with_its_bar(make):
    wrong = taylor_says(make.curve(1e-3))
    assert wrong.startswith("⟨g, d⟩ is 0.25, and 0.001 ± 1e-12 is missing from it; slope 1.0 (")
    right = taylor_says(make.curve(0.0))
    assert "and 0 ± 1e-12 is missing from it; slope 3.0 (" in right


def test_a_curve_of_noise_has_no_slope_to_speak_of(make):
    assert "slope" not in taylor_says(make.curve(0.0, noise=1.0))
    nan = (math.nan,) * 7
    assert "slope" not in taylor_says(make.curve(0.0, slopes=nan))
    assert taylor_says(make.curve(0.0, linear=True)).endswith("every remainder is noise")
    lost = taylor_says(make.curve(0.0, error_bar=math.inf))
    assert lost == "⟨g, d⟩ is 0.25; no steps agree on what is missing from it"
