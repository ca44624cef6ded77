"""Tiny models of the architectures that are exported, with a tokenizer whose rule of cutting texts a GGUF file can name."""

from functools import cache

import torch
from tiny import TEXTS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from training.model.attention import NAME
from training.model.model import CHAT_TEMPLATE, END, TAGS

SIZES = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    initializer_range=0.3,
    rms_norm_eps=1e-5,
)


@cache
def tokenizer():
    """As SmolLM2's: digits one by one, then GPT-2's rule."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=360 - len(TAGS),
        special_tokens=["<|endoftext|>", "<|im_start|>", END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(TEXTS, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tok, eos_token=END, pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    fast.add_tokens(TAGS)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build(kind, *, seed=0, **more):
    """A model of a `model_type` with random weights and random biases and norms."""
    sizes = SIZES | {"head_dim": 8} if kind != "qwen2" else SIZES
    config = AutoConfig.for_model(
        kind,
        **sizes | more,
        vocab_size=-(-len(tokenizer()) // 16) * 16,
        eos_token_id=tokenizer().eos_token_id,
        pad_token_id=tokenizer().pad_token_id,
        bos_token_id=None,
    )
    if kind == "mistral":
        config.sliding_window = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for p in model.parameters():
            if p.dim() == 1:
                p.data.add_(torch.randn_like(p), alpha=0.2)
    model.set_attn_implementation(NAME)
    return model.eval()
