"""The knob rl.teacher: what it may be, and one sentence for what it may not."""

from pathlib import Path

import pytest

from tasks.core.errors import UserError
from tasks.models.teachers import configured
from tasks.planning.resolve import check_asked, check_params, resolve


def test_a_name_is_a_teacher_and_a_list_is_several():
    assert configured("models/big") == [{"model": "models/big", "weights": {}, "url": "", "top_k": 20}]
    two = configured(["a", {"model": "b", "weights": {"countdown": 2, "": 0.0}}])
    assert [t["model"] for t in two] == ["a", "b"] and two[1]["weights"] == {"countdown": 2, "": 0.0}


@pytest.mark.parametrize(
    "given, message",
    [
        ([3], r"rl.teacher\[0\] is 3: name a model"),
        ([{"model": "a", "weigths": {}}], "unknown key 'weigths'.*weights"),
        ([{"weights": {}}], "model is missing"),
        ([{"model": "a", "top_k": 5}], "add its url"),
        ([{"model": "a", "url": "http://127.0.0.1:9/v1", "top_k": 0}], "top_k is 0"),
        ([{"model": "a", "weights": {"x": -1}}], "numbers of 0 or more"),
    ],
)
def test_what_is_no_teacher_is_refused_in_a_sentence(given, message):
    with pytest.raises(UserError, match=message):
        configured(given)


@pytest.mark.parametrize("given", ["models/big", [{"model": "models/big", "weights": {"countdown": 1.0}}]])
def test_a_plan_takes_one_teacher_or_a_list(given):
    def planned(teacher):
        stages = resolve(check_params({"recipe": "gkd", "set": {"rl": {"teacher": teacher}}}, Path("params.yaml")))[0]
        check_asked("gkd", stages)
        return stages["rl"].value("teacher")

    assert planned(given) == given
    with pytest.raises(UserError, match="gkd needs a teacher .* or a list of them"):
        planned("")
    with pytest.raises(UserError, match="rl.teacher must be str or list"):
        planned(3)
