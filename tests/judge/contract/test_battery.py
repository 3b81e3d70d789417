import pytest

from gradcheck.judge.contract_check import PROPERTIES


def test_names_and_sentences_are_unique():
    assert len({p.name for p in PROPERTIES}) == len(PROPERTIES) == 16
    assert len({p.says for p in PROPERTIES}) == len(PROPERTIES)


@pytest.mark.parametrize("asked", PROPERTIES, ids=lambda p: p.name)
def test_each_says_what_is_owed_in_one_sentence(asked):
    assert asked.says[0].isupper()
    assert asked.says.endswith(".")
    assert asked.needs in ("", "strided", "asked", "into")
    assert asked.examine.__doc__
