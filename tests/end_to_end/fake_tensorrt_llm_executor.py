"""``tensorrt_llm.executor`` of the stand-in."""

from dataclasses import dataclass


@dataclass
class LoRARequest:
    """An adapter of a request."""

    lora_name: str
    lora_int_id: int
    lora_path: str
    lora_ckpt_source: str = "hf"
