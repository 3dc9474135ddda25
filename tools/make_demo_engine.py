"""Build of the shipped demo engine from ``datasets/prompts.json`` and a seed.

    python tools/make_demo_engine.py OUTPUT_DIR          (extra [export]; about a minute)

A byte-level BPE tokenizer is trained on the shipped prompts, a small Llama gets seeded random weights, and both are converted
by the project's own build command. The generated text is meaningless; cost, batching and caching are real.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from serving.engines.openvino.build import build_openvino_engine

SEED = 20261121
VOCABULARY_SIZE = 3072
PROMPTS = Path(__file__).parent.parent / "datasets" / "prompts.json"


def train_tokenizer() -> PreTrainedTokenizerFast:
    rows = json.loads(PROMPTS.read_text(encoding="utf-8"))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((row[field] for row in rows for field in ("input", "instruction", "output")), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def random_llama() -> LlamaForCausalLM:
    torch.manual_seed(SEED)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=256,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
            max_position_embeddings=4096,
            initializer_range=0.08,  # large enough that greedy text varies instead of repeating one token
            tie_word_embeddings=False,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


def main(output_dir: Path) -> None:
    with tempfile.TemporaryDirectory() as checkpoint:
        model = random_llama()
        model.save_pretrained(checkpoint)
        train_tokenizer().save_pretrained(checkpoint)
        build_openvino_engine(Path(checkpoint), output_dir, "fp16")
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters; {output_dir}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
