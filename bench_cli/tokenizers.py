"""Tokenizers as the verbs that measure, recover and generate use them: their folders, and token counts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.prompts.exact_text import TextCodec


_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "config.json")


def open_tokenizer(tokenizer_dir: Path) -> Any:
    """The tokenizer of --tokenizer_dir. Raises TargetError when the folder has none."""
    from harness.errors import TargetError
    from serving.text.tokenizer import load_tokenizer

    try:
        return load_tokenizer(tokenizer_dir)
    except ValueError as error:
        raise TargetError(f"--tokenizer_dir: {error}") from error


def hub_tokenizer_dir(name: str) -> Path | None:
    """The folder of the tokenizer ``name`` in the local Hugging Face cache, or fetched from the hub; None where neither has
    one. Only the tokenizer's files are fetched, which are read as data.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    for local in (True, False):
        with suppress(OSError, ValueError, HFValidationError, LocalEntryNotFoundError):
            folder = Path(snapshot_download(name, allow_patterns=list(_TOKENIZER_FILES), local_files_only=local))
            if any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer.model", "vocab.json")):
                return folder
    return None


def shipped_tokenizer() -> Any:
    """The demo engine's tokenizer: it makes text for a model whose own is unknown, and its counts hold for no other model."""
    from serving.engines.openvino.folder import DEMO_ENGINE_DIR

    return open_tokenizer(DEMO_ENGINE_DIR)


def text_codec(tokenizer: Any) -> TextCodec:
    """The tokenizer's two directions, without special tokens."""
    from serving.text.tokenizer import FileTokenizer
    from serving.text.words import divides_words
    from workloads.prompts.exact_text import TextCodec

    codec = TextCodec(
        lambda ids: str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)),
        lambda text: list(tokenizer.encode(text, add_special_tokens=False)),
    )
    if not isinstance(tokenizer, FileTokenizer):
        return codec
    return replace(
        codec,
        decode_many=tokenizer.decode_many,
        encode_many=lambda texts: tokenizer.encode_many(texts, add_special_tokens=False),
        divides_words=divides_words(tokenizer.backend),
    )


def ordinary_token_ids(tokenizer: Any) -> list[int]:
    """The vocabulary without its special tokens."""
    special = set(tokenizer.all_special_ids)
    return [token for token in range(len(tokenizer)) if token not in special]


def token_counter(tokenizer: Any) -> Callable[[str], int]:
    """A function that counts the tokens of a generated text."""
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
