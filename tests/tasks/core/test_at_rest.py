"""What is remembered while files are at rest, and that it is forgotten after."""

import threading

import pytest

from tasks.core.at_rest import files_at_rest, once_at_rest
from tasks.planning.plan import plans


@pytest.fixture
def looked():
    calls = []

    @once_at_rest
    def look(name):
        calls.append(name)
        if name == "none":
            raise FileNotFoundError(name)
        return [name]

    look.calls = calls
    return look


def test_once_within_a_block_and_each_time_outside(looked):
    assert looked("a") == looked("a") == ["a"] and looked.calls == ["a", "a"]
    with files_at_rest():
        first = looked("a")
        with files_at_rest():  # shares what the outer one remembers, and leaves it
            assert looked("a") is first
        assert looked("a") is first and looked("b") == ["b"]
    assert looked.calls == ["a", "a", "a", "b"]
    assert looked("a") is not first


def test_an_exception_is_not_remembered_and_ends_the_block(looked):
    with pytest.raises(FileNotFoundError), files_at_rest():
        with pytest.raises(FileNotFoundError):
            looked("none")
        looked("none")
    looked("a"), looked("a")
    assert looked.calls == ["none", "none", "a", "a"]


def test_other_threads_look_for_themselves(looked):
    with files_at_rest():
        looked("a")
        thread = threading.Thread(target=lambda: (looked("a"), looked("a")))
        thread.start()
        thread.join()
    assert looked.calls == ["a", "a", "a"]


def test_a_plan_sees_what_was_changed_since_the_last(tmp_path):
    (tmp_path / "pieces/advantage").mkdir(parents=True)
    (tmp_path / "params.yaml").write_text("set: {rl: {advantage: mine}}\n")
    mine = tmp_path / "pieces/advantage/mine.py"
    mine.write_text("def mine(groups, *, eps: float = 1e-5): ...\n")
    with pytest.MonkeyPatch.context() as m:
        m.chdir(tmp_path)
        assert plans(tmp_path)["rl"]["params"]["advantage"] == {"piece": "mine", "eps": 1e-5}
        mine.write_text("def mine(groups, *, eps: float = 1e-4, more: int = 3): ...\n")
        assert plans(tmp_path)["rl"]["params"]["advantage"] == {"piece": "mine", "eps": 1e-4, "more": 3}
