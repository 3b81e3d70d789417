"""Names in a quoted expression are spelt out, once each, and only those that are the text's own."""

from gradcheck.explain.trace.glossary import MOST, glossary


def area(xp, r, *, scale=1.0):
    square = r * r
    twice = 2 * square
    changed = square
    changed = changed + 1
    added = 0
    added += r
    return scale * twice + xp.sum(changed, axis=-1) + added


def test_a_name_is_spelt_out_and_so_is_what_it_is_made_of():
    said = glossary(area, "dr lacks the term `twice`")
    assert said == "in the reference, `twice` is `2 * square`, `square` is `r * r`"


def circle(xp, r):
    return volume(r) / 3


def volume(r):
    height = 2 * r
    return height * area(None, r)


def test_what_it_calls_in_its_module_gives_names_too():
    said = glossary(circle, "dr lacks the factor `height` of `twice`")
    assert said.startswith("in the reference, `height` is `2 * r`, `twice` is `2 * square`")


def test_arguments_functions_and_what_stands_outside_quotes_are_left():
    assert glossary(area, "square: `r * scale` lacks `sum(r)`") == ""
    assert glossary(area, "nothing quoted, twice") == ""


def test_a_name_that_changes_its_meaning_is_left():
    assert glossary(area, "`changed` and `added`") == ""


def test_a_function_without_a_source_says_nothing():
    assert glossary(eval("lambda x: x"), "`x`") == ""  # noqa: S307
    assert glossary(len, "`x`") == ""


def test_it_does_not_go_on_for_ever():
    def long(a):
        b = a + 1
        c = b + 1
        d = c + 1
        e = d + 1
        f = e + 1
        return f  # noqa: RET504

    assert glossary(long, "`f`").count(" is ") == MOST
