"""Chat templates of known model families, and a tokenizer that knows their special tokens: what `Renderer` makes of
each is in `TABLE`, which docs/your-model.md shows (`make models`).

Texts are those that TRL ships, word for word; where it ships none, a short one in the family's style stands here.
"""

import re
from dataclasses import dataclass
from importlib import resources

from training.model.model import CHAT_TEMPLATE, train_tokenizer

_SPECIAL = re.compile(
    r"<\|[^|>\s']{1,40}\|>|<｜[^｜>]{1,40}｜>|<start_of_turn>|<end_of_turn>|<turn\|>|<\|\w+>|\[/?[A-Z_]{3,30}\]|</s>|<eos>"
)
# SmolLM2-Instruct: ChatML, with a system message of its own where none is given.
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# SmolLM3: the date in its system message; a thought that is empty where thinking is off.
SMOLLM3 = (
    "{% set now = strftime_now('%d %B %Y') %}<|im_start|>system\nToday Date: {{ now }}\n"
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}<|im_end|>\n"
    "{% for m in messages %}{% if m.role in ('user', 'tool') %}<|im_start|>user\n{{ m.content }}<|im_end|>\n"
    "{% elif m.role == 'assistant' %}<|im_start|>assistant\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if not enable_thinking %}<think>\n\n</think>\n{% endif %}{% endif %}"
)
# Mistral-7B-Instruct: turns must alternate, the system message stands in the first of them, results want an id of their call.
MISTRAL = (
    "<s>{% if messages[0].role == 'system' %}{% set told = messages[0].content + '\n\n' %}{% set rest = messages[1:] %}{% else %}"
    "{% set told = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}{% if m.role not in ('user', 'assistant') %}"
    "{{ raise_exception('Only user and assistant roles are supported, with the exception of an initial optional system message!') }}"
    "{% endif %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('After the optional system message, conversation roles must alternate user/assistant') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ told if loop.first else '' }}{{ m.content }}[/INST]{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
# Phi-4: ChatML with a separator after the role.
PHI4 = (
    "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}"
)
# Granite 3: roles in tokens of their own, results in the role tool_response.
GRANITE = (
    "{% for m in messages %}<|start_of_role|>{{ 'tool_response' if m.role == 'tool' else m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
# OLMo 2: three roles; what else there is is left out.
OLMO2 = (
    "<|endoftext|>{% for m in messages %}{% if m.role == 'system' %}<|system|>\n{{ m.content }}\n{% elif m.role == 'user' %}<|user|>\n"
    "{{ m.content }}\n{% elif m.role == 'assistant' %}<|assistant|>\n{{ m.content }}<|endoftext|>{% if not loop.last %}\n{% endif %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
# Templates that nobody should train on.
NO_ASSISTANT = "{% for m in messages %}{% if m.role != 'assistant' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
WITHIN = "the system message stands in the user's turn"
AS_USER = "tool results are written as a user's turn"


@dataclass(frozen=True)
class Case:
    """One template: `text` of our own, or the name of TRL's file; `says` is what happens: "works", or a part of the
    sentence that refuses it."""

    family: str
    text: str
    eos: str
    as_user: tuple[str, ...] = ()
    refused: str = ""
    note: str = ""
    reason: str = ""

    @property
    def shipped(self) -> bool:
        return "{" not in self.text

    def template(self) -> str:
        if not self.shipped:
            return self.text
        return (resources.files("trl") / "chat_templates" / f"{self.text}.jinja").read_text(encoding="utf-8")

    def tokenizer(self):
        template = self.template()
        fast = train_tokenizer(["What is the capital of Norvia ? <x> 7"] * 3, 400)
        fast.add_special_tokens(
            {"extra_special_tokens": sorted({*_SPECIAL.findall(template), self.eos}), "bos_token": "<s>"}
        )
        fast.eos_token, fast.chat_template = self.eos, template
        fast.name_or_path = self.family
        return fast


TOOL = ("tool",)
CUT = "a turn has no end of its own: what follows it, another token each time, is its end"
TABLE = (
    Case("Espalier's own (ChatML)", CHAT_TEMPLATE, "<|im_end|>"),
    Case("Qwen2.5", "qwen2_5", "<|im_end|>"),
    Case("Qwen3", "qwen3", "<|im_end|>", note="thinking is off"),
    Case("Qwen3 Instruct 2507", "qwen3_instruct_2507", "<|im_end|>"),
    Case("Qwen3.5", "qwen3_5_think", "<|im_end|>", note="thinking is off"),
    Case("Qwen3.6", "qwen3_6", "<|im_end|>", note="thinking is off"),
    Case("Llama 3", "llama3", "<|eot_id|>"),
    Case("Llama 3.1", "llama3_1", "<|eot_id|>", note="its date is always the same day"),
    Case("Llama 3.2", "llama3_2", "<|eot_id|>", note="its date is always the same day"),
    Case("SmolLM2", SMOLLM2, "<|im_end|>"),
    Case("SmolLM3", SMOLLM3, "<|im_end|>", note="thinking is off; its date is always the same day"),
    Case("Gemma 1 and 2", "gemma", "<eos>", ("system", "tool"), note="ends a turn with <end_of_turn>"),
    Case("Gemma 3", "gemma3", "<eos>", TOOL, note="ends a turn with <end_of_turn>"),
    Case("Gemma 4", "gemma4", "<eos>", TOOL, note="ends a turn with <turn|>"),
    Case("Gemma 4, second version", "gemma4_v2", "<eos>", note="ends a turn with <turn|>"),
    Case("Gemma 4, fifth version", "gemma4_v5", "<eos>", TOOL, note="ends a turn with <turn|>"),
    Case("Phi-3", "phi3", "<|endoftext|>", TOOL, note="ends a turn with <|end|>"),
    Case("Phi-3.5", "phi3_5", "<|endoftext|>", TOOL, note="ends a turn with <|end|>"),
    Case("Phi-4", PHI4, "<|im_end|>", TOOL),
    Case("Mistral 7B Instruct", MISTRAL, "</s>", TOOL),
    Case("DeepSeek V3", "deepseekv3", "<｜end▁of▁sentence｜>", TOOL, note="a turn begins within a thought"),
    Case(
        "DeepSeek R1 Distill",
        "deepseek_r1_distill",
        "<｜end▁of▁sentence｜>",
        TOOL,
        note="a turn begins within a thought",
    ),
    Case("GLM-4 MoE", "glm4moe", "<|endoftext|>", refused="does not end a turn with a token of its own", reason=CUT),
    Case(
        "gpt-oss",
        "gptoss",
        "<|return|>",
        refused="does not end a turn with a token of its own",
        reason="the last turn ends with <|return|> and an earlier one with <|end|>, each in a channel",
    ),
    Case("LFM2", "lfm2", "<|im_end|>"),
    Case("LFM2.5", "lfm2_2_5", "<|im_end|>"),
    Case("Granite 3", GRANITE, "<|end_of_text|>"),
    Case("OLMo 2", OLMO2, "<|endoftext|>", TOOL),
    Case("Cohere", "cohere", "<|END_OF_TURN_TOKEN|>", TOOL),
    Case("Cohere 2", "cohere2", "<|END_OF_TURN_TOKEN|>", TOOL, note="ends a turn with <|END_RESPONSE|>"),
    Case("Nemotron 3", "nemotron_3_nano", "<|im_end|>", note="thinking is off"),
    Case("LLaVA-NeXT", "llava_next", "</s>", TOOL, note="a message is a list of parts"),
)
