"""A spec that contradicts itself is refused at once, and the message says how to repair it."""

import numpy as np
import pytest

from gradcheck.errors import SpecError, UnknownNameError, UsageError
from gradcheck.spec import Dialect, Kink, OpSpec, Sample, Slack


def forward(xp, x, w=None, *, eps=1e-5, bits=False):
    return x if w is None else x * w


def vjp(xp, ct, x, w=None, *, eps=1e-5, bits=False):
    return ct if w is None else (ct * w, ct * x)


def sample(name="typical", **changes):
    given = {"primals": lambda draw: (draw.normal(3), draw.normal(3)), "hunts": "a lost factor"}
    return Sample(name=name, **{**given, **changes})


def spec(**changes):
    given = {
        "name": "scale",
        "signature": "(d),(d)->(d)",
        "forward": forward,
        "vjp": vjp,
        "samples": (sample(),),
        "formula": "y = x w",
        "source": "nobody 1970",
    }
    return OpSpec(**{**given, **changes})


def kink(**changes):
    given = {"name": "x = 0", "gap": lambda xp, x, **_: xp.abs(x), "accept": (0.0, 1.0)}
    return Kink(source="convexity", **{**given, **changes})


def refused(*parts, **changes):
    with pytest.raises(SpecError) as caught:
        spec(**changes)
    for part in parts:
        assert part in str(caught.value)


def test_a_sound_spec_is_accepted_and_read():
    dialects = (Dialect(name="plain", says="no weight", without=("w",), attrs={"eps": 0.1}),)
    it = spec(dialects=dialects, samples=(sample(dialects=("plain",), attrs={"bits": True}),))
    assert it.primals == ("x", "w")
    assert it.optional == ("w",)
    assert it.defaults == {"eps": 1e-5, "bits": False}
    assert it.core_ranks == (1, 1)
    assert it.dialect("plain").without == ("w",)
    assert it.family == __name__.rpartition(".")[2]
    assert issubclass(SpecError, UsageError)
    assert SpecError.exit_code == 2


# ── functions ────────────────────────────────────────────────────────────────────────────────


def test_a_vjp_with_another_default_shows_both_signatures():
    def other(xp, ct, x, w=None, *, eps=1e-6, bits=False):
        return ct

    refused("operator 'scale'", "'eps=1e-06'", "'eps=1e-05'", "with `ct` after `xp`", vjp=other)


def other_order(xp, ct, w, x=None, *, eps=1e-5, bits=False):
    return ct


def no_cotangent(xp, x, w=None, *, eps=1e-5, bits=False):
    return x


def missing_attribute(xp, ct, x, w=None, *, eps=1e-5):
    return ct


@pytest.mark.parametrize("wrong", [other_order, no_cotangent, missing_attribute])
def test_a_vjp_that_takes_other_arguments_is_refused(wrong):
    refused("Give vjp the arguments of forward, with `ct` after `xp`.", vjp=wrong)


def test_forward_begins_with_xp_and_names_everything_it_takes():
    refused("the first argument of forward must be `xp`", forward=lambda x: x)
    refused("the first argument of forward must be `xp`", forward=lambda: 0)
    refused("spell out the arguments", forward=lambda xp, *x: x)
    refused("spell out the arguments", forward=lambda xp, x, **attrs: x)

    def undecided(xp, x, *, eps):
        return x

    refused("attribute 'eps' of forward needs a default", forward=undecided)


@pytest.mark.parametrize(
    ("signature", "inputs", "outputs"),
    [
        ("(d)->(d)", 1, 1),
        ("(d),(d),(d)->(d)", 3, 1),
        ("(d),(d)->", 2, 0),
        ("(d),(d)", 2, 0),
        ("", 0, 0),
    ],
)
def test_a_signature_with_another_number_of_arguments_is_refused(signature, inputs, outputs):
    refused(
        f"names {inputs} inputs and {outputs} outputs",
        "['x', 'w']",
        "write one '(axes)' per primal, '->', and one per output",
        signature=signature,
    )


# ── texts and names ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("part", ["formula", "source"])
@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_spec_without_formula_or_source_is_refused(part, text):
    refused(f"`{part}` is empty", **{part: text})


def test_a_sample_says_what_it_hunts():
    with pytest.raises(SpecError, match="say in `hunts` which defect it would expose"):
        sample(hunts=" ")


@pytest.mark.parametrize("name", ["", "Big", "two words", "a/b", "-x", "a#b", "naïve", "a\n"])
def test_a_name_that_cannot_stand_on_a_command_line_is_refused(name):
    makers = {
        "operator": lambda: spec(name=name),
        "sample": lambda: sample(name),
        "dialect": lambda: Dialect(name=name, says="something"),
    }
    for kind, make in makers.items():
        with pytest.raises(SpecError, match="use lower-case letters, digits") as caught:
            make()
        assert str(caught.value).startswith(f"{kind} name {name!r}")


@pytest.mark.parametrize("name", ["a", "rms_norm", "eps-0.1", "2-layers"])
def test_ordinary_names_are_accepted(name):
    assert spec(name=name, samples=(sample(name),)).name == name


def test_two_samples_or_dialects_of_one_name_are_refused():
    refused("two samples are called 'typical'; rename one", samples=(sample(), sample()))
    twice = (Dialect(name="a", says="one"), Dialect(name="a", says="two"))
    refused("two dialects are called 'a'; rename one", dialects=twice)


def test_a_spec_without_samples_is_refused():
    refused("has no samples: add at least one Sample", samples=())


# ── attributes, dialects, primals ────────────────────────────────────────────────────────────


def test_an_attribute_that_forward_lacks_is_refused():
    refused(
        "'typical': attribute 'epsilon' is not a keyword of forward",
        "known: ['bits', 'eps']",
        samples=(sample(attrs={"epsilon": 0.1}),),
    )
    wrong = Dialect(name="odd", says="something", attrs={"x": 1})
    refused("'odd': attribute 'x'", dialects=(wrong,))


def test_a_sample_of_an_unknown_dialect_is_refused():
    wrong = sample(dialects=("plain",))
    refused("no dialect 'plain'; known: ['default']", samples=(wrong,))


def test_only_an_optional_primal_can_be_left_out():
    for name in ("x", "bias"):
        wrong = Dialect(name="bare", says="something", without=(name,))
        refused(f"primal {name!r} cannot be left out", "default None", dialects=(wrong,))


def test_an_unknown_dialect_is_an_error_that_knows_the_nearest():
    it = spec(dialects=(Dialect(name="gemma", says="one"), Dialect(name="llama", says="two")))
    with pytest.raises(UnknownNameError, match="did you mean 'gemma'"):
        it.dialect("gema")


# ── kinks and slack ──────────────────────────────────────────────────────────────────────────


def test_a_kink_that_no_sample_visits_is_refused():
    refused("declares the kink 'x = 0' but no sample visits it", "at_kink=True", kinks=(kink(),))
    assert spec(kinks=(kink(),), samples=(sample(at_kink=True),)).kinks


def test_slopes_are_sorted_numbers_or_a_function_of_the_attributes():
    assert kink().slopes({"eps": 1}) == (0.0, 1.0)
    assert kink(accept=lambda eps: (-eps, eps)).slopes({"eps": 2}) == (-2, 2)
    assert kink(accept=(1.0, 1.0)).slopes({}) == (1.0, 1.0)
    for wrong in ((1.0, 0.0), lambda: (2.0, 1.0), (np.nan, 1.0)):
        with pytest.raises(SpecError, match=r"kink 'x = 0': accept is .*; sort it"):
            kink(accept=wrong).slopes({})


def test_a_wider_bound_needs_its_sentence():
    for because in ("", " "):
        with pytest.raises(SpecError, match="a wider bound needs a sentence"):
            Slack(ulp=64, because=because)
    for ulp in (-1, np.inf, np.nan, "64"):
        with pytest.raises(SpecError, match=r"Slack\.ulp is .*: write how many, 0 or more"):
            Slack(ulp=ulp, because="a table in float16")
    assert Slack(ulp=64, because="a table in float16").ulp == 64
