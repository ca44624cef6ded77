"""Conversations as ids: rollouts and demonstrations are cut alike, and any template whose text between turns is constant will do."""

import numpy as np
import pytest

from synth.types import Message
from training.model import CHAT_TEMPLATE, train_tokenizer
from training.render import Renderer

# As Qwen3's does, it adds an empty thought to the last answer only, calls a tool's message a user's, and opens a turn with a thought that is
# empty where thinking is off.
THINKING = (
    "{% for m in messages %}{% set role = 'user' if m.role == 'tool' else m.role %}<|im_start|>{{ role }}\n"
    "{% if loop.last and role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}"
)
COUNTING = CHAT_TEMPLATE.replace("{{ m.role }}", "{{ m.role }} {{ loop.index }} of {{ messages | length }}")
ENDLESS = CHAT_TEMPLATE.replace("<|im_end|>", "")
MESSAGES = [
    Message(role="user", content="What is the capital of Norvia?"),
    Message(role="assistant", content="<search>capital of Norvia</search>"),
    Message(role="tool", content="The capital of Norvia is Zelton."),
    Message(role="assistant", content="<answer>Zelton</answer>"),
]


def tokenizer(template=CHAT_TEMPLATE):
    tok = train_tokenizer([m.content for m in MESSAGES] * 2, 400)
    tok.chat_template = template
    return tok


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, THINKING], ids=["chatml", "thinking"])
def test_a_rollout_and_a_demonstration_are_the_same_ids(template):
    r = Renderer(tokenizer(template))
    ids, said = r.demonstration(MESSAGES)
    parts = [r.prompt(MESSAGES[:1]), r.turn(MESSAGES[1].content), r.observation(MESSAGES[2:3]), r.turn(MESSAGES[3].content)]
    np.testing.assert_array_equal(ids, np.concatenate(parts))
    assert [r.decode(ids[said][: len(parts[1])]), r.decode(ids[said][len(parts[1]) :])] == [MESSAGES[1].content, MESSAGES[3].content]
    assert len(said) == len(ids) and said.sum() == len(parts[1]) + len(parts[3])


def test_the_text_is_the_templates_own():
    tok = tokenizer()
    ids, _ = Renderer(tok).demonstration(MESSAGES)
    whole = tok.apply_chat_template([{"role": m.role, "content": m.content} for m in MESSAGES], tokenize=False)
    assert tok.decode(ids) + "\n" == whole


def test_a_model_that_can_think_is_asked_not_to():
    tok = tokenizer(THINKING)
    r = Renderer(tok)
    assert all(tok.decode(ids).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n") for ids in (r.prompt(MESSAGES[:1]), r.observation(MESSAGES[2:3])))


@pytest.mark.parametrize("template", [COUNTING, ENDLESS], ids=["counts its messages", "never ends a turn"])
def test_a_template_that_looks_back_is_refused(template):
    with pytest.raises(ValueError, match="set the tokenizer's chat_template to a ChatML one"):
        Renderer(tokenizer(template))
