"""A report is taken apart result by result: nothing but what is made of them is kept."""

import hashlib
import io
import json
from dataclasses import replace

import pytest

from gradcheck.results.finding import Certificate
from gradcheck.results.run import SCHEMA
from gradcheck.results.stored import parts as read_apart
from gradcheck.results.stored.parts import Damaged, Other, parts
from gradcheck.results.stored.plain import header_dict, result_dict
from gradcheck.results.stored.read import _Reader, result_of

HEADER = {"schema": SCHEMA}
FOOTER = {"complete": True}


def document(results, indent=None):
    whole = {"header": HEADER, "results": results, "footer": FOOTER}
    return json.dumps(whole, indent=indent).encode()


def taken(content, made=lambda plain: plain["k"]):
    return parts(io.BytesIO(content), made)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_document_is_the_same_however_it_is_laid_out(indent, count):
    found = taken(document([{"k": k} for k in range(count)], indent))
    assert (found.header, found.results) == (HEADER, [*range(count)])
    assert (found.footer, found.fault) == (FOOTER, None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it ends within its first line"),
        (b"\n", "the document: Expecting value"),
        (b"[]", "the document: it is no object"),
        (b"{}", "it has no header"),
        (b'{"header": {}, "results": []}', "it has no footer"),
        (document([]).replace(b"[]", b"{}"), "no list of objects"),
        (document([1]), "no list of objects"),
        (document([1], 2), "no list of objects"),
        (document([{"k": 1}], 2).replace(b"1", b"NaN"), "NaN is no JSON"),
        (document([{"k": 1}], 2)[:-3], "the document: "),
        (document([], 2).replace(b'"schema"', b'"scheme"'), "its header names no schema"),
        (document([], 2).replace(b'{\n    "complete": true\n  }', b"3"), "its footer is no object"),
        (b'{"header": ', "it ends within its first line"),
    ],
)  # fmt: skip
def test_what_is_no_report_says_where(content, says):
    with pytest.raises(Damaged, match=says):
        taken(content)


def test_another_schema_is_told_from_damage():
    with pytest.raises(Other, match=f"its schema is {SCHEMA + 1}"):
        taken(document([], 2).replace(str(SCHEMA).encode(), str(SCHEMA + 1).encode(), 1))


def refuses(plain):
    if plain["k"] == 2:
        raise Damaged("it is two")
    return plain["k"]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_result_that_nothing_can_be_made_of_is_kept_for_last(indent):
    found = taken(document([{"k": k} for k in range(5)], indent), refuses)
    assert found.results == [0, 1]
    assert str(found.fault) == "it is two"
    assert found.footer == FOOTER


def log(*results, footer):
    lines = [{"header": HEADER}, *({"result": result} for result in results), {"footer": footer}]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def test_a_log_that_was_changed_is_called_so_before_its_results_are_blamed():
    changed = log({"k": 2}, footer={"sha256": "0"})
    with pytest.raises(Damaged, match="changed after it was written"):
        taken(changed, refuses)
    cut = changed[: changed.index(b'{"footer"') + 5]
    found = taken(cut, refuses)
    assert (found.results, found.footer, str(found.fault)) == ([], None, "it is two")


@pytest.mark.parametrize("footer", [{}, {"sha256": ""}, {"sha256": None}, {"complete": True}])
def test_a_footer_without_the_hash_seals_nothing(footer):
    with pytest.raises(Damaged, match="changed after it was written"):
        taken(log({"k": 1}, footer=footer))


def test_a_footer_seals_what_stands_before_it_and_nothing_may_follow():
    whole = log({"k": 1}, {"k": 3}, footer={})
    lines = whole[: whole.index(b'{"footer"')]
    sealed = f'{{"footer": {{"sha256": "{hashlib.sha256(lines).hexdigest()}"}}}}\n'.encode()
    assert taken(lines + sealed).results == [1, 3]
    with pytest.raises(Damaged, match="changed after it was written"):
        taken(lines.replace(b"3", b"4") + sealed)
    with pytest.raises(Damaged, match="line 5: there is something after the footer"):
        taken(lines + sealed + b"\n")


def test_only_one_result_is_there_at_a_time():
    """What is made of a result outlives it; the result itself does not."""
    import weakref

    class Kept(dict):
        """A dict that says when it goes."""

    alive = []

    def made(plain):
        assert sum(ref() is not None for ref in alive) <= 1
        kept = Kept(plain)
        plain["self"] = kept
        alive.append(weakref.ref(kept))
        return plain["k"]

    assert taken(log(*({"k": k} for k in range(9)), footer={})[: -len('{"footer": {}}\n')], made)
    assert len(alive) == 9
    alive.clear()
    assert taken(document([{"k": k} for k in range(9)], 2), made).results == [*range(9)]


@pytest.mark.parametrize(
    "text",
    [
        '{"k": "\\ud800"}', '{"k": [1e400, -1e400]}', '{"k": 123456789012345678901234567890}',
        '{"k": 1, "k": 2.50}', '{"k": [-0, -0.0, 5e-324, 1E5, 0.1, 9007199254740993.0]}',
        '{"k": "\\u00e9\\/\u2028 caf\u00e9"}', '\t{"k": {}} ',
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_whoever_reads_an_object_it_means_the_same(text, encoding):
    content = text.encode(encoding)
    assert repr(read_apart._object(content, "here")) == repr(json.loads(text))
    assert repr(read_apart._patiently(content, "here")) == repr(json.loads(text))


@pytest.mark.parametrize("text", ['{"k": NaN}', '{"k": 01}', '{"k": "a\tb"}', "{", '"\x01"', "1"])
def test_what_one_refuses_so_does_the_other(text):
    with pytest.raises(Damaged, match="here: "):
        read_apart._object(text.encode(), "here")


def test_certificates_and_words_that_are_equal_are_one_object(make):
    """A million results have few of their own."""
    certificate = Certificate(rejected=("zero",), blind=("ulp",), tolerated=())
    run = make.run(make.result(certificate=certificate))
    plain = json.loads(json.dumps(result_dict(run, run.results[0])))
    assert result_of({**plain}).finding.certificate == certificate
    known = {}
    one, two = (result_of(json.loads(json.dumps(plain)), known) for _ in range(2))
    assert one.finding.certificate is two.finding.certificate
    assert one == two == result_of(plain)


def test_an_element_that_is_none_is_damage_and_no_crash(make):
    run = make.run(make.result())
    plain = json.loads(json.dumps(result_dict(run, run.results[0])))
    with pytest.raises(Damaged):
        _Reader().result({**plain, "worst": [3]})


def test_a_line_of_64_mib_is_none_of_ours():
    first = json.dumps({"header": HEADER}).encode() + b"\n"
    with pytest.raises(Damaged, match="line 2: it is longer than any"):
        taken(first + b" " * (1 << 26))


@pytest.mark.parametrize("require", [(), ("rms_*",)])
def test_a_header_says_what_was_required_and_nothing_of_what_was_not(make, require):
    header = header_dict(replace(make.run().header, require=require))
    assert header.get("require") == (require or None)
