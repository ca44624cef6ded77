"""Text of others on a terminal and on a page: no command, whatever goes wrong in it, prints what acts or hides."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flows.cli import main
from tasks.core import text
from tasks.core.paths import CODE

HARM = "\x1b]0;taken\x07\x1b[2J\x9b1A\u202eevil\u2066\u200f\r\x00\x7f\u2028\U000e0041\ud800"
KEPT = "Ünï — 東京 \u00a0 العربية नमस्ते 👩\u200d🚀 می\u200cخواهم\ttab\nline"


def clean(written):
    return not any(c in written for c in HARM if c not in "]0;taken[2JA1evil")


def test_what_acts_or_hides_is_replaced_and_all_scripts_are_kept():
    assert text.harmless(KEPT) == KEPT
    assert clean(text.harmless(HARM)) and text.harmless(HARM).count("\ufffd") == sum(not c.isprintable() for c in HARM)
    assert text.escape("<b>\x1b\u202e&'") == "&lt;b&gt;\ufffd\ufffd&amp;&#x27;"


def test_json_reads_back_the_same():
    value = {"a" + HARM: [HARM, KEPT, 1.5, None]}
    for indent in (None, 1):
        written = text.dumps(value, indent)
        assert clean(written) and json.loads(written) == value and "東京" in written


def test_streams_are_put_back_and_nest(capsys):
    before = sys.stdout
    with text.terminal():
        with text.terminal():
            print(HARM, end="")
            print(HARM, file=sys.stderr)
            sys.stdout.writelines([HARM])
            text.own(sys.stdout).write("\x1b[1mours")
        assert isinstance(sys.stdout.fileno, object) and sys.stdout.isatty() is False
    assert sys.stdout is before
    output = capsys.readouterr()
    assert output.out.endswith("\x1b[1mours") and clean(output.out.removesuffix("\x1b[1mours")) and clean(output.err)


@pytest.mark.parametrize(
    "words",
    [
        ["why", HARM],
        ["why", "--of", HARM, "x"],
        ["run", "--set", f"rl.{HARM}=1", "--dry-run"],
        ["run", "--set", HARM, "--dry-run"],
        ["run", "--recipe", HARM, "--dry-run"],
        [HARM],
        ["kb", "build", HARM, "--out", "kb"],
        ["kb", "show", HARM],
        ["compare", HARM, "b"],
        ["review", HARM],
        ["search", "ask", "x", "--kb", HARM],
        ["verify", HARM],
        ["stop", HARM],
        ["questions", "--no-such", HARM],
    ],
)
def test_errors_of_commands(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("recipe: grpo\n")
    words = [w.replace("\x00", "").replace("\ud800", "") for w in words]  # which no argument can hold
    try:
        code = main(words)
    except SystemExit as e:
        code = e.code
    output = capsys.readouterr()
    assert code and clean(output.out + output.err) and output.out + output.err


def test_file_names_and_contents_of_sources(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "a\x1b[2J\u202e"
    (tmp_path / f"{name}.csv").write_text("x\x1b[1m,y\x9b\n1\x1b,2\u202e\n")
    (tmp_path / f"{name}.json").write_text('{"\\u001b[2J": ["\\u202e"]}')
    (tmp_path / f"{name}.xyz").write_text("\x1b")
    for path in tmp_path.glob("a*"):
        main(["kb", "build", str(path), "--out", str(tmp_path / "kb")])
    output = capsys.readouterr()
    assert clean(output.out + output.err) and "\ufffd" in output.out + output.err


def test_the_traceback_of_an_error_of_ours():
    script = "import flows.cli\nwith flows.cli.terminal():\n    raise RuntimeError('\\x1b[2J\\u202e' + chr(0xd800))"
    env = {**os.environ, "PYTHONPATH": str(CODE)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True)
    error = done.stderr.decode()
    assert done.returncode == 1 and "RuntimeError: \ufffd[2J\ufffd\ufffd" in error and "Traceback" in error


def test_the_progress_line(monkeypatch):
    from tasks.runtime.progress import Progress

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with text.terminal(), Progress(3, "rows\x1b]0;x\x07 [red]") as p:
        p.update(1, of="\u202e")
    drawn = seen.getvalue()
    assert "1/3" in drawn and "of \ufffd" in drawn and "\u202e" not in drawn
    assert "rows\ufffd]0;x\ufffd [red]" in drawn, "foreign text is neither a control sequence nor rich's markup"
    of_rich = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours, the cursor, lines that are drawn again
    assert of_rich.search(drawn) and "\x1b" not in of_rich.sub("", drawn)
    assert drawn.rfind("\x1b[?25h") > drawn.rfind("\x1b[?25l"), "the cursor is shown again"


def test_pages_show_nothing_that_hides(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"prompt": f"What is {i} and {i * i}?", "chosen": f"It is {i + i * i}, surely.", "rejected": f"I think {i}."}
        for i in range(40)
    ]
    for row in rows[::9]:
        row |= {"prompt": row["prompt"] + "\x1b[2J\u202e", "chosen": row["chosen"] + "\x9b\u2066"}
    rows += rows[:5]
    (tmp_path / "pairs\u202e.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert main(["clean", "pairs\u202e.jsonl", "--out", "out"]) == 0
    assert clean(capsys.readouterr().out)
    html = (tmp_path / "out/index.html").read_text()
    assert clean(html) and "\ufffd[2J\ufffd" in html
    modules = [p for folder in ("tasks", "flows") for p in Path(CODE / folder).rglob("*.py")]
    direct = [p.name for p in modules if "from html import" in p.read_text() or "import html" in p.read_text()]
    assert direct == ["text.py"], "pages escape through tasks/core/text.py"
