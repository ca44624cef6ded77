"""Chat templates of known families: every role's text reaches the model, or loading refuses with a remedy."""

import pytest
import templates
from templates import TABLE

from synth.types import Message
from training.model.render import Renderer

TALK = [
    Message(role="system", content="ALPHA one"),
    Message(role="user", content="BETA two"),
    Message(role="assistant", content="<search>GAMMA three</search>"),
    Message(role="tool", content="DELTA four"),
    Message(role="tool", content="EPSILON five"),
    Message(role="assistant", content="<answer>ZETA six</answer>"),
]
WORKS = [c for c in TABLE if not c.refused]


@pytest.mark.parametrize("case", WORKS, ids=[c.family for c in WORKS])
def test_no_text_of_any_role_is_lost(case):
    renderer = Renderer(case.tokenizer())
    assert renderer.as_user == frozenset(case.as_user)
    ids, mask = renderer.demonstration(TALK)
    text = renderer.tokenizer.decode(ids)
    at = [text.find(m.content) for m in TALK]
    assert min(at) >= 0 and at == sorted(at), text
    turns = [renderer.turn(m.content) for m in TALK if m.role == "assistant"]
    assert mask.sum() == sum(map(len, turns)) and ids[-1] == renderer.end_id
    rest = renderer.tokenizer.decode(ids[~mask])
    assert "GAMMA" not in rest and "DELTA four" in rest, "what a tool says is never trained on as a turn"


@pytest.mark.parametrize("case", [c for c in TABLE if c.refused], ids=[c.family for c in TABLE if c.refused])
def test_a_template_that_would_lose_text_or_turns_is_refused_with_a_remedy(case):
    with pytest.raises(ValueError, match=case.refused) as caught:
        Renderer(case.tokenizer())
    assert "set the tokenizer's chat_template to a ChatML one" in str(caught.value) and "\n" not in str(caught.value)


def test_the_page_shows_these_tables():
    from docs.generators import models

    assert models.page() == models.PAGE.read_text(encoding="utf-8"), "make models"


def test_a_template_without_assistants_is_refused():
    case = templates.Case("no assistant", templates.NO_ASSISTANT, "<|im_end|>")
    with pytest.raises(ValueError, match="loses the text of a message of the role assistant"):
        Renderer(case.tokenizer())


def test_a_template_that_writes_no_question_is_refused():
    silent = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role != 'user' %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    with pytest.raises(ValueError, match="loses the text of a message of the role user"):
        Renderer(templates.Case("no question", silent, "<|im_end|>").tokenizer())


def test_the_end_of_a_turn_is_the_templates():
    """Gemma's and Phi's tokenizers name another eos_token than the one that ends a turn."""
    ends = {
        c.family: Renderer(c.tokenizer()).end for c in TABLE if c.family in ("Gemma 3", "Phi-3", "Qwen3", "Llama 3")
    }
    assert ends == {"Gemma 3": "<end_of_turn>", "Phi-3": "<|end|>", "Qwen3": "<|im_end|>", "Llama 3": "<|eot_id|>"}


def test_a_template_that_writes_the_date_writes_the_same_one_every_day():
    case = next(c for c in TABLE if c.family == "SmolLM3")
    renderer = Renderer(case.tokenizer())
    assert "Today Date: 01 January 2025" in renderer.tokenizer.decode(renderer.prompt(TALK[:2]))


def test_system_messages_that_follow_each_other_are_one():
    case = next(c for c in TABLE if c.family == "Mistral 7B Instruct")
    renderer = Renderer(case.tokenizer())
    text = renderer.tokenizer.decode(renderer.prompt([TALK[0], Message(role="system", content="MORE"), TALK[1]]))
    assert "ALPHA one\n\nMORE" in text and text.endswith("BETA two[/INST]")
