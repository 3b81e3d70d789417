import sys

import pytest

from benchmarks.conversation import Conversation, LostPeer

LONG = 300
"""Seconds in which a process answers, on any machine."""
ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


def process(code):
    return Conversation([sys.executable, "-S", "-c", code])


def test_a_line_is_answered_by_a_line():
    with process(ECHO) as talk:
        assert talk.ask(LONG, do="check", seed=3) == {"do": "check", "seed": 3}
        assert talk.ask(LONG, do="import") == {"do": "import"}
        assert talk.lost is None


def test_everybody_has_one_thread():
    code = "import os, json\ninput(); print(json.dumps(dict(os.environ)), flush=True)"
    with process(code) as talk:
        found = talk.ask(LONG, do="x")
    assert found["OPENBLAS_NUM_THREADS"] == found["OMP_NUM_THREADS"] == "1"
    assert "intra_op_parallelism_threads=1" in found["XLA_FLAGS"]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os\ninput(); os.abort()", "crashed: SIGABRT"),
        ("input(); raise SystemExit('no such tensor')", r"ended with 1 \(no such tensor\)"),
        ("import sys\nsys.exit(3)", "ended with 3"),
        ("print('warming up', flush=True); input(); input()", "no answer but 'warming up'"),
        ("print(7, flush=True); input(); input()", "no answer but '7'"),
        (r"print('\x80', flush=True); input(); input()", "no answer but"),
        ("input(); print('{\"cpu\": 1', end='')", "ended with 0"),
        ("import time\ntime.sleep(60)", "over 0 s"),
    ],
)
def test_what_becomes_of_a_process_is_said_and_said_again(code, said):
    with process(code) as talk:
        limit = 0.3 if "sleep" in code else LONG
        with pytest.raises(LostPeer, match=said):
            talk.ask(limit, do="check")
        with pytest.raises(LostPeer, match=said):
            talk.ask(limit, do="check")
    assert talk._process.returncode is not None


def test_a_process_that_does_not_end_by_itself_is_ended():
    talk = process("import time\nprint('{}', flush=True)\ntime.sleep(60)")
    assert talk.ask(LONG, do="x") == {}
    talk.lost = "the test is over"
    talk.close()
    assert talk._process.returncode == -9
