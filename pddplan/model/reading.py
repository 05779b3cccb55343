"""Reading dimensions out of a config: every value remembers the key it came from, every missing one is listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pddplan.errors import InputError, Problem
from pddplan.model.architectures import CLASS_DEFAULTS, MODEL_TYPE_ALIASES
from pddplan.units import shown

LARGEST = 1_000_000_000
TEXT_CONFIGS = ("text_config", "language_config", "llm_config", "thinker_config")
TRIVIAL_KEYS = frozenset(
    [
        "architectures", "auto_map", "model_type", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "use_cache",
        "return_dict", "initializer_range", "hidden_dropout", "hidden_dropout_prob", "attention_dropout", "attn_pdrop", "embd_pdrop",
        "resid_pdrop", "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "sep_token_id", "output_attentions",
        "output_hidden_states", "pruned_heads", "id2label", "label2id", "problem_type", "prefix", "task_specific_params",
        "tie_encoder_decoder", "torchscript", "is_decoder", "is_encoder_decoder", "bad_words_ids", "top_k", "top_p", "temperature",
        "typical_p", "num_beams", "num_beam_groups", "num_return_sequences", "max_length", "min_length", "length_penalty",
        "repetition_penalty", "diversity_penalty", "early_stopping", "do_sample", "encoder_no_repeat_ngram_size", "no_repeat_ngram_size",
        "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "begin_suppress_tokens",
        "suppress_tokens", "tokenizer_class", "use_bfloat16", "remove_invalid_values", "output_scores", "return_dict_in_generate",
        "add_cross_attention", "cross_attention_hidden_size", "chunk_size_feed_forward", "quantization_config", "rms_norm_eps",
        "layer_norm_epsilon", "layer_norm_eps", "norm_eps", "layernorm_epsilon", "pretraining_tp",
    ]
)  # keys that say nothing of size


class Keys:
    """The language part of one config.json. ``place`` names the file in errors."""

    def __init__(self, root: Mapping[str, Any], place: str) -> None:
        self.place = place
        self.root = root
        self.section = ""
        self.text: Mapping[str, Any] = root
        for name in TEXT_CONFIGS * 2:
            inner = self.text.get(name)
            if isinstance(inner, Mapping):
                self.text = inner
                self.section += f"{name}."
        self.origin: dict[str, str] = {}
        self.used: set[str] = set()
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.class_defaults = CLASS_DEFAULTS.get(self.model_type, {}) if self.section else {}

    @property
    def model_type(self) -> str:
        name = str(self.text.get("model_type") or self.root.get("model_type") or "")
        return MODEL_TYPE_ALIASES.get(name, name)

    @property
    def architecture(self) -> str:
        names = self.root.get("architectures") or self.text.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else self.model_type or "unknown"

    def get(self, *names: str, default: Any = None) -> Any:
        """First value that is there and not null, from the language section or the top level; ``a.b`` reads b of a."""
        for name in names:
            outer, _, inner = name.rpartition(".")
            for where, section in ((self.text, self.section), (self.root, "")):
                found = where.get(outer) if outer else where
                if isinstance(found, Mapping) and found.get(inner) is not None:
                    self.used.add(outer or inner)
                    self.origin[names[0]] = f"{section}{name}"
                    return found[inner]
        return default

    def integer(self, *names: str, default: int | None = None, minimum: int = 1, maximum: int = LARGEST) -> int | None:
        """A whole number within its bounds (or a list of equal ones), ``default`` when absent or null; faults are kept for ``finish``."""
        value = self.get(*names)
        if value is None:
            return self._class_default(names[0]) or default
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) != float("inf")
        if not whole or value != int(value) or not minimum <= value <= maximum:
            self.invalid(names[0], shown(value), f"a whole number from {minimum} to {maximum:,}")
            return default
        return int(value)

    def need(self, *names: str, maximum: int = LARGEST) -> int:
        """A dimension that no default may replace; 1 after a missing one, whose problem is kept for ``finish``."""
        value = self.integer(*names, maximum=maximum)
        if value is not None:
            return value
        if not any(self.get(name) is not None for name in names):
            self.missing(*names)
        return 1

    def _class_default(self, name: str) -> int | None:
        """What the family's configuration class fills in for a key that a sub-config leaves out: said in ``notes``."""
        value = self.class_defaults.get(name)
        if value is not None and name not in self.origin:
            self.origin[name] = f"default of {self.model_type}"
            self.notes.append(f"{self.section}{name} is absent: {value}, what transformers fills in for {self.model_type}")
        return value

    def missing(self, *names: str) -> None:
        looked = ", ".join(names)
        where = f" in {self.section.rstrip('.')} and at the top" if self.section else ""
        self.problems.append(
            Problem(f"{self.place} {names[0]}", f"missing (architecture {self.architecture})", f"one of the keys {looked}{where}")
        )

    def invalid(self, name: str, found: object, accepted: str, example: str = "") -> None:
        problem = Problem(f"{self.place} {self.origin.get(name, name)}", str(found), accepted, example)
        if problem not in self.problems:
            self.problems.append(problem)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        return default if value is None else bool(value)

    def marks(self, *names: str) -> Sequence[Any] | None:
        """A list, or a text of one-letter marks."""
        value = self.get(*names)
        if value is None or isinstance(value, list | str):
            return value
        self.invalid(names[0], shown(value), "a list, or a text with one mark each")
        return None

    def per_layer(self, name: str, layers: int) -> Sequence[Any] | None:
        """A list with one entry a layer (entries beyond, of MTP layers, are cut off)."""
        value = self.get(name)
        if not isinstance(value, list):
            return None
        if len(value) < layers:
            self.invalid(name, f"a list of {len(value)} entries", f"one entry for each of the {layers} layers")
            return None
        return value[:layers]

    def finish(self) -> None:
        """Raises InputError with everything that was missing or wrong."""
        if self.problems:
            raise InputError(self.problems)

    def ignored(self) -> tuple[str, ...]:
        skip = self.used | TRIVIAL_KEYS | set(TEXT_CONFIGS)
        return tuple(sorted({f"{self.section}{key}" for key in self.text if key not in skip}))
