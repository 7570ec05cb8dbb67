"""Tokenizers of the library `tokenizers`: those of Hugging Face folders, and byte-level BPE of GGUF files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from dlc.errors import ModelError, UnsupportedError
from dlc.files.json_files import read_json
from dlc.files.regular_files import read_model_file, read_model_text
from dlc.language_models.tokenizers.gguf_vocabulary import GgufVocabulary, byte_of

# The pre-tokenization regular expressions, by tokenizer.ggml.pre (llama-vocab.cpp).
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_WORD_PATTERNS = {
    **dict.fromkeys(("gpt-2", "gpt2", "default", "olmo", "phi-2"), (_GPT2,)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"), (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "qwen25", "stablelm2"), (_QWEN2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), (r"\p{N}", _GPT2)),
}


def _library() -> Any:
    """Return the optional package."""
    try:
        return import_module("tokenizers")
    except ImportError:
        raise UnsupportedError("tokenizers of this kind need the package tokenizers: pip install 'dlc[llm]'") from None


def _characters_of_bytes() -> dict[str, int]:
    """Return the byte that each character of a byte-level token stands for (GPT-2's bytes_to_unicode)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    remaining = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(remaining)}


class LibraryTokenizer:
    """A tokenizer of the library.

    Attributes:
        end_tokens, chat_template, special_texts: See Tokenizer.
        max_token_characters: None: normalizers may shorten texts.
    """

    max_token_characters: int | None = None

    def __init__(
        self,
        tokenizer: Any,
        end_tokens: frozenset[int],
        chat_template: str | None,
        special_texts: Mapping[str, str],
        first: int | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._first = first
        self.end_tokens, self.chat_template, self.special_texts = end_tokens, chat_template, special_texts

    @staticmethod
    def of_folder(folder: Path) -> LibraryTokenizer:
        """Read tokenizer.json, with the settings next to it. Raises ModelError if there is none, or it is malformed."""
        path = folder / "tokenizer.json"
        if not path.exists():
            raise ModelError(f"{folder}: no tokenizer.json; pass token ids, or save the tokenizer with save_pretrained")
        library, content = _library(), read_model_file(path)
        try:
            tokenizer = library.Tokenizer.from_buffer(content)
        except Exception as error:  # The library raises Exception itself.
            raise ModelError(f"{path}: not a tokenizer: {error}") from error
        # Files of encoders may truncate texts and pad them to a fixed length.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        settings = [read_json(p) if (p := folder / name).exists() else {} for name in ("tokenizer_config.json", "config.json")]
        generation = read_json(p) if (p := folder / "generation_config.json").exists() else {}
        ends: set[int] = set()
        for options in (settings[1], generation):
            value = options.get("eos_token_id")
            ends |= {v for v in (cast("list[Any]", value) if isinstance(value, list) else [value]) if isinstance(v, int)}
        template = settings[0].get("chat_template")
        if (template_path := folder / "chat_template.jinja").exists():
            template = read_model_text(template_path)
        special: dict[str, str] = {}
        for role in ("bos_token", "eos_token", "unk_token", "pad_token"):
            text = settings[0].get(role)
            text = cast("dict[str, Any]", text).get("content") if isinstance(text, dict) else text
            if isinstance(text, str):
                special[role] = text
        return LibraryTokenizer(tokenizer, frozenset(ends), template if isinstance(template, str) else None, special, None)

    @staticmethod
    def of_gguf(metadata: Mapping[str, Any], source: str) -> LibraryTokenizer:
        """Return the byte-level BPE tokenizer of a file's metadata. Raises ModelError and UnsupportedError."""
        library, vocabulary = _library(), GgufVocabulary.of(metadata, source)
        kind, merges = vocabulary.field("pre", "default"), vocabulary.field("merges")
        patterns = _WORD_PATTERNS.get(kind) if isinstance(kind, str) else None
        if patterns is None:
            raise UnsupportedError(
                f"{source}: tokenizer.ggml.pre = {kind!r} is not supported; supported: {', '.join(_WORD_PATTERNS)}"
            )
        if not isinstance(merges, list):
            raise ModelError(f"{source}: tokenizer.ggml.merges is missing")
        pairs = [tuple(str(merge).split(" ", 1)) for merge in cast("list[Any]", merges)]
        try:
            model = library.models.BPE(
                {text: i for i, text in enumerate(vocabulary.texts)}, pairs, ignore_merges=kind == "llama-bpe"
            )
        except Exception as error:  # The library raises Exception itself.
            raise ModelError(f"{source}: tokenizer.ggml.merges do not fit the tokens: {error}") from error
        tokenizer = library.Tokenizer(model)
        splits = [library.pre_tokenizers.Split(library.Regex(pattern), "isolated") for pattern in patterns]
        byte_level = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence([*splits, byte_level])
        tokenizer.add_special_tokens([library.AddedToken(text, special=True, normalized=False) for text in vocabulary.special])
        first = vocabulary.token("bos_token_id") if vocabulary.flag("add_bos_token", kind == "llama-bpe") else None
        return LibraryTokenizer(tokenizer, vocabulary.end_tokens, vocabulary.chat_template, vocabulary.special_texts, first)

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Return the ids of a text; `add_special` adds the token that begins texts, if the model has one.

        Raises ModelError if the tokenizer fails.
        """
        try:
            ids = list(self._tokenizer.encode(text, add_special_tokens=add_special).ids)
        except Exception as error:  # The library raises Exception itself.
            raise ModelError(f"the tokenizer fails: {error}") from error
        return [self._first, *ids] if add_special and self._first is not None else ids

    def decode_bytes(self, token: int) -> bytes:
        """Return the bytes that a token appends to the text; none for special tokens."""
        text = self._tokenizer.id_to_token(token)
        if text is None or token in self._special_ids:
            return b""
        if all(c in self._bytes for c in text):
            return bytes([self._bytes[c] for c in text])
        if (byte := byte_of(text)) is not None:
            return bytes([byte])
        return text.replace("\u2581", " ").encode()

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        decoder = self._tokenizer.get_added_tokens_decoder()
        return frozenset(i for i, token in decoder.items() if token.special)

    @cached_property
    def _bytes(self) -> Mapping[str, int]:
        """The byte of each character of a byte-level token; empty for other tokenizers."""
        pre = self._tokenizer.pre_tokenizer
        return _characters_of_bytes() if "ByteLevel" in repr(pre) else {}
