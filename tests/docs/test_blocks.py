"""Code blocks of pages: what a copy button takes, and what is coloured."""

import pytest

blocks = pytest.importorskip("_pages.blocks")

CONSOLE = (
    '<span class="gp">$ </span>gcc<span class="w"> </span>-o<span class="w"> </span>a.so '
    '<span class="se">\\\n</span>  a.c<span class="w"> </span>&amp;&amp; ls\n'
    '<span class="go">FAIL dx, as a PASSENGER $ 5</span>\n\n<span class="gp">$ </span>python'
)


def test_commands_keep_continued_lines_and_drop_prompts_and_output():
    assert blocks.commands(CONSOLE) == "gcc -o a.so \\\n  a.c && ls\npython"


def test_a_block_without_a_prompt_is_copied_whole():
    assert blocks.commands('<span class="nb">print</span>(1)') == ""
    html = blocks.finished("<pre><code>print(1)</code></pre>")
    assert 'data-clipboard-target="#code-0"' in html
    assert '<code id="code-0">print(1)</code>' in html


def test_a_command_with_quotes_stays_one_attribute():
    html = blocks.finished('<pre><code><span class="gp">$ </span>echo "a &lt; b"</code></pre>')
    assert 'data-clipboard-text="echo &quot;a &lt; b&quot;"' in html


def test_verdicts_of_output_are_coloured_and_no_other_words():
    html = blocks.finished(f"<pre><code>{CONSOLE}</code></pre><p>FAIL</p>")
    assert html.count('<span class="says fail">FAIL</span>') == 1
    assert "says pass" not in html
    assert "<p>FAIL</p>" in html


def test_a_table_takes_keys_unless_it_has_a_link():
    html = blocks.finished('<table><td><a href="x">x</a></table> <table><td>y</table>')
    assert html.count('<table tabindex="0">') == 1
    assert html.endswith('<table tabindex="0"><td>y</table>')
