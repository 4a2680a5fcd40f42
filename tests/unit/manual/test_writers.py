"""What is said reaches the reader as it was said: roff and Markdown take nothing of it for their own."""

from __future__ import annotations

import subprocess

import pytest

from needs import lacks
from nodectl.cli.manual import markdown, prose, roff
from nodectl.cli.manual.document import Block, Code, Heading, OptionTerm, Page, Paragraph, Table, Terms

NASTY = (".so /etc/passwd", "'br", "back\\slash \\fB", "--option's ^~\"", "a.b", "...", "-", "\u00e4\u2014")


def page(*blocks: Block) -> Page:
    return Page("x", 1, "what it is", blocks)


def shown(*blocks: Block) -> str:
    text = roff.written(page(*blocks), "2026-01-01")
    made = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-P-cbou"], input=text, text=True, capture_output=True,
                          check=True)  # fmt: skip
    assert made.stderr == ""
    return made.stdout


@pytest.mark.skipif(lacks("groff"), reason="no groff here: ./dev setup as root installs it")
@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("block", [Paragraph, Code, lambda text: Terms([(text, text)]), lambda text: Heading(text, 2),
                                   lambda text: Table(("a", "b"), [(text, text)])])  # fmt: skip
def test_text_that_looks_like_roff_is_text(block: type[Paragraph], text: str) -> None:
    assert text in shown(Heading("H"), Paragraph("p"), block(text), Paragraph("end"))


def test_lines_of_code_stay_lines_and_keep_their_indent() -> None:
    written = roff.written(page(Code("a\n\n    b")), "2026-01-01")
    assert "\n.nf\na\n.sp\n    b\n.fi\n" in written


def test_argument_of_an_option_is_set_off_from_its_name() -> None:
    written = roff.written(page(Terms([(OptionTerm(["-n", "--ntasks"], "=N"), "Tasks.")])), "2026-01-01")
    assert "\n.TP\n\\fB\\-n\\fR, \\fB\\-\\-ntasks\\fR=\\fIN\\fR\nTasks.\n" in written


def test_markdown_keeps_what_html_and_markdown_would_take() -> None:
    assert "a\\_b \\*c\\* &lt;d\\> &amp; &#124; `*e_f*`" in markdown.written(
        page(Paragraph("a_b *c* <d> & | `*e_f*`")), frozenset()
    )


def test_paragraphs_and_code_of_a_docstring_are_told_apart() -> None:
    found = list(prose.blocks("One\n    line.\n\n        code\n\n            more\n\n    Two."))
    assert found == [Paragraph("One line."), Code("code\n\n    more"), Paragraph("Two.")]
