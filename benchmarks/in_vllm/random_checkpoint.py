"""A Llama checkpoint of random weights that are the same for any number of GPUs, which vLLM's dummy weights are not.

    PYTHON random_checkpoint.py CONFIG_DIR OUT_DIR

Writes OUT_DIR with the files of CONFIG_DIR, weights of N(0, 0.02) in float16, and ``"dtype": "float16"`` in its config.json. It
runs in vLLM's environment, on a GPU where there is one.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

_DEVIATION = 0.02


def main() -> None:
    import torch
    from safetensors.torch import save_file

    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True)
    for path in source.iterdir():
        shutil.copyfile(path, out / path.name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (out / "config.json").write_text(json.dumps(config | {"dtype": "float16", "torch_dtype": "float16"}), encoding="utf-8")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.empty(rows, columns, dtype=torch.float16, device=device).normal_(0.0, _DEVIATION).cpu()

    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries, keys = config["num_attention_heads"] * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
    ones = torch.ones(hidden, dtype=torch.float16)
    where = {}

    def save(number: int, tensors: dict[str, torch.Tensor]) -> None:
        name = f"model-{number:05d}.safetensors"
        save_file(tensors, out / name, metadata={"format": "pt"})
        where.update(dict.fromkeys(tensors, name))

    for layer in range(config["num_hidden_layers"]):
        shapes = {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        tensors = {f"model.layers.{layer}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        norms = ("input_layernorm", "post_attention_layernorm")
        save(layer, tensors | {f"model.layers.{layer}.{name}.weight": ones.clone() for name in norms})
    ends = {"model.embed_tokens.weight": matrix(vocabulary, hidden), "lm_head.weight": matrix(vocabulary, hidden)}
    save(config["num_hidden_layers"], ends | {"model.norm.weight": ones.clone()})
    index = {"metadata": {}, "weight_map": where}
    (out / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


if __name__ == "__main__":
    main()
