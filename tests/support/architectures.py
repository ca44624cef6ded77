"""Small random models of the architectures that transformers has: what happens to each is in `TABLE`, which
docs/your-model.md shows (`make models`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as t

V = 400  # at least the ids of tiny.tokenizer()
SIZES = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "initializer_range": 0.2,
    "max_position_embeddings": 256,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts_per_tok": 2}


@dataclass(frozen=True)
class Case:
    """refused: a part of the sentence that refuses it; reason: the same in the table's words."""

    name: str
    make: Callable[..., Any]
    knobs: dict[str, Any]
    refused: str = ""
    reason: str = ""
    note: str = ""

    def model(self) -> torch.nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = t.AutoModelForCausalLM.from_config(self.make(**self.knobs), dtype=torch.float32).eval()
            for p in model.parameters():  # biases and norms that begin equal would hide a mistake
                if p.dim() == 1:
                    p.data += 0.1 * torch.randn_like(p)
        return model


def like(
    name: str, make: Callable[..., Any], note: str = "", refused: str = "", reason: str = "", **knobs: Any
) -> Case:
    return Case(name, make, SIZES | knobs, refused, reason, note)


WINDOW = "rows within its sliding window"
TABLE = (
    like("Llama", t.LlamaConfig),
    like("Qwen2", t.Qwen2Config),
    like("Qwen3", t.Qwen3Config),
    like("Gemma", t.GemmaConfig),
    like("Gemma 3", t.Gemma3TextConfig, WINDOW, sliding_window=64),
    like("Mistral", t.MistralConfig, WINDOW, sliding_window=64),
    like("Phi-3", t.Phi3Config),
    Case("GPT-2", t.GPT2Config, {"vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2}),
    like("GPT-NeoX", t.GPTNeoXConfig),
    like("SmolLM3", t.SmolLM3Config),
    like("OLMo 2", t.Olmo2Config),
    like("OLMo 3", t.Olmo3Config, WINDOW, sliding_window=64),
    Case(
        "OPT",
        t.OPTConfig,
        {
            "vocab_size": V,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 48,
            "word_embed_proj_dim": 32,
            "max_position_embeddings": 256,
            "init_std": 0.2,
        },
    ),
    like("GLM-4", t.Glm4Config),
    like("Granite", t.GraniteConfig, "its logits are scaled", logits_scaling=0.5, attention_multiplier=0.2),
    like("Cohere", t.CohereConfig, "its logits are scaled", logit_scale=2.0),
    like("Cohere 2", t.Cohere2Config, f"its logits are scaled; {WINDOW}", logit_scale=2.0, sliding_window=64),
    like(
        "Qwen2-MoE",
        t.Qwen2MoeConfig,
        "experts, which `router_loss` balances",
        num_experts=4,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        **EXPERTS,
    ),
    like(
        "Qwen3-MoE",
        t.Qwen3MoeConfig,
        "experts, which `router_loss` balances",
        num_experts=4,
        moe_intermediate_size=16,
        **EXPERTS,
    ),
    like("Mixtral", t.MixtralConfig, "experts, which `router_loss` balances", num_local_experts=4, **EXPERTS),
    like(
        "DeepSeek V3",
        t.DeepseekV3Config,
        "experts; no auxiliary loss of the router",
        num_key_value_heads=4,
        n_routed_experts=8,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=16,
        first_k_dense_replace=1,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        **EXPERTS,
    ),
    like("Gemma 2", t.Gemma2Config, refused="softcap", reason="its attention is soft-capped", sliding_window=64),
    like(
        "gpt-oss",
        t.GptOssConfig,
        refused="s_aux",
        reason="its attention has sinks",
        num_local_experts=4,
        sliding_window=64,
        rope_scaling=None,
        **EXPERTS,
    ),
    Case(
        "BLOOM",
        t.BloomConfig,
        {"vocab_size": V, "hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.2},
        refused="attention cannot be replaced",
        reason="its attention (ALiBi) cannot be replaced by one over packed rows",
    ),
    like(
        "LFM2",
        t.Lfm2Config,
        refused="see each other",
        reason="its convolutions let packed rows see each other",
        layer_types=["conv", "full_attention"],
    ),
    Case(
        "Mamba",
        t.MambaConfig,
        {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4},
        refused="attention cannot be replaced",
        reason="it has no attention",
    ),
)
