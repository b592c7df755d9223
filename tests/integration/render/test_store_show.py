"""`dataserver store show`: what is a target is seen, as text and as a page."""

import os
import subprocess
import sys

import pytest

from dataserver.render.conversation import conversation_of
from dataserver.render.tokenizer import load_tokenizer, open_renderer
from dataserver.render.view import page, view_row
from dataserver.render_options import RenderOptions
from dataserver.testing import write_store

ROW = {
    "messages": [
        {"role": "user", "content": "Grüße <b> 🙂"},
        {"role": "assistant", "content": "it sleeps 你好"},
    ]
}


@pytest.fixture(scope="module")
def sample(chatml):
    return open_renderer(RenderOptions(tokenizer=chatml)).render(conversation_of(ROW))


@pytest.fixture(scope="module")
def store(sample, tmp_path_factory):
    path = tmp_path_factory.mktemp("shown") / "store"
    return write_store(path, rows=[(sample.input_ids, [int(target) for target in sample.loss_mask]), ([5, 6], [0, 0])])


def show(*words, **environment):
    command = [sys.executable, "-m", "dataserver.cli.main", "store", "show", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def test_targets_stand_between_marks_where_there_are_no_colours(store, chatml, sample):
    shown = show(store, "--tokenizer", chatml).stdout
    assert f"row 0: {len(sample.input_ids)} tokens, {sum(sample.loss_mask)} targets" in shown
    assert "Grüße <b> 🙂<|im_end|>\n<|im_start|>assistant\n⟦it sleeps 你好<|im_end|>⟧\n" in shown
    assert "in 1 stretch, ending with <|im_end|> (1)\n" in shown
    assert "row 1: 2 tokens, 0 targets (0%), not served: no_target" in shown


def test_a_terminal_has_targets_in_green_control_tokens_in_bold_and_the_rest_dim(store, chatml):
    shown = show(store, "--tokenizer", chatml, "--row", 0, FORCE_COLOR="1", TERM="xterm", COLORTERM="").stdout
    assert "\x1b[30;42mit sleeps 你好\x1b[0m\x1b[1;30;42m<|im_end|>\x1b[0m" in shown
    assert "\x1b[1;36m<|im_start|>\x1b[0m\x1b[2muser" in shown
    assert "⟦" not in shown


def test_the_page_escapes_what_was_said_and_marks_targets(store, chatml, tmp_path):
    done = show(store, "--tokenizer", chatml, "--row", 0, "--html", tmp_path / "row.html")
    assert done.stdout.strip() == str(tmp_path / "row.html")
    text = (tmp_path / "row.html").read_text()
    assert "Grüße &lt;b&gt; 🙂" in text
    assert '<span class="target">it sleeps 你好</span><span class="target control">&lt;|im_end|&gt;</span>' in text
    assert "<script" not in text
    assert "src=" not in text


def test_a_row_that_is_not_there_is_refused(store, chatml):
    assert "There is no row 2 in" in show(store, "--tokenizer", chatml, "--row", 2).stderr


def test_runs_hold_every_token_once_and_characters_whole(store, chatml, sample):
    import numpy as np

    tokenizer = load_tokenizer(chatml)
    ids, mask = np.array(sample.input_ids, np.int32), np.array(sample.loss_mask, np.uint8)
    view = view_row(tokenizer, 0, ids, mask, "")
    assert "".join(run.text for run in view.runs) == tokenizer.decode(sample.input_ids)
    assert sum(run.tokens for run in view.runs) == len(sample.input_ids)
    assert sum(run.tokens for run in view.runs if run.is_target) == sum(sample.loss_mask)
    assert "�" not in page("x", [view])
