"""Measured kernel constants of a chip under an engine, as absolute rates.

    t = launch t0 + max( 2 n k (m + m_half) / (P e_c), bytes / (BW e_m) )

The constants are fits to kernel measurements (hardware_profiles/engines/kernels.yaml, with fit errors). A chip nobody
measured borrows the fractions of the chip its profile names (``Chip.efficiency_of``) at its own peaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from pddplan.data_files import data_root
from pddplan.errors import InputError, Problem
from pddplan.hardware.dtypes import compute_dtype
from pddplan.hardware.types import Chip

MICRO = 1e-6
CUT_DIE_BANDWIDTH, CUT_DIE_PEAK = 0.8, 0.5  # a cut die: at least this share of the measured bandwidth, less than that of its peak
GIGA = 1e9

# A format without kernel measurements on a chip uses the next one of its chain.
_GEMM_CHAIN: dict[str, tuple[str, ...]] = {
    "bf16": ("bf16",),
    "fp16": ("bf16",),
    "fp8": ("fp8", "fp8_block", "bf16"),
    "fp8_block": ("fp8_block", "fp8", "bf16"),
    "nvfp4": ("nvfp4", "fp8", "bf16"),
    "fp4": ("nvfp4", "fp8", "bf16"),
    "mxfp4": ("bf16",),
    "int8": ("int8", "fp8", "bf16"),
    "int4": ("int4", "bf16"),
}
_MOE_CHAIN: dict[str, tuple[str, ...]] = {
    "bf16": ("bf16",),
    "fp16": ("bf16",),
    "fp8": ("fp8", "fp8_block", "bf16"),
    "fp8_block": ("fp8_block", "fp8", "bf16"),
    "nvfp4": ("nvfp4", "fp8_block", "fp8", "bf16"),
    "fp4": ("nvfp4", "fp8_block", "fp8", "bf16"),
    "mxfp4": ("mxfp4_mxfp8", "mxfp4", "int4", "bf16"),
    "int8": ("fp8", "bf16"),
    "int4": ("int4", "bf16"),
}
# Peak that the e_c of a measured kernel refers to.
_PEAK_OF = {
    "bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "int4": "bf16", "int8": "int8",
    "int8_weight_only": "bf16", "mxfp4": "bf16", "mxfp4_mxfp8": "fp8",
}  # fmt: skip
_ENGINE_ORDER = {
    "vllm": ("vllm", "sglang", "trtllm"),
    "sglang": ("sglang", "vllm", "trtllm"),
    "trtllm": ("trtllm", "sglang", "vllm"),
    "generic": ("vllm", "sglang", "trtllm"),
}


@dataclass(frozen=True)
class GemmKernel:
    """Dense GEMM: ``flops_per_s`` reached at large m, ``m_half`` rows, streaming ``bytes_per_s``, floor ``t0_s``.

    ``compute_share`` and ``memory_share`` are the fractions of the chip's peaks that the rates stand for.
    """

    flops_per_s: float
    m_half: float
    bytes_per_s: float
    t0_s: float
    compute_share: float
    memory_share: float


@dataclass(frozen=True)
class MoeKernel:
    """Grouped GEMM with routing and permutation; ``activation_bytes_per_s`` is the rate of the permutation traffic."""

    flops_per_s: float
    m_half: float
    bytes_per_s: float
    activation_bytes_per_s: float
    t0_s: float
    compute_share: float
    memory_share: float


@dataclass(frozen=True)
class AttentionKernel:
    """Attention core. ``s_half``: query tokens at which half of ``flops_per_s`` is reached (prefill; 0 in decode)."""

    flops_per_s: float
    bytes_per_s: float
    t0_s: float
    compute_share: float
    memory_share: float
    s_half: float = 0.0


@dataclass(frozen=True)
class Collective:
    """alpha-beta model of a collective: ``alpha_s + bytes_on_wire / bytes_per_s``."""

    alpha_s: float
    bytes_per_s: float


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Mapping[str, Any]]:
    path = data_root() / "hardware_profiles" / "engines" / "kernels.yaml"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    chips: Mapping[str, Mapping[str, Any]] = yaml.load(path.read_text(), Loader=loader)["chips"]
    return chips


@dataclass(frozen=True)
class KernelSet:
    """Kernels of one chip under one engine. ``measured`` is False when the fractions are another chip's."""

    chip: Chip
    engine: str
    tables: Mapping[str, Any]
    measured: bool
    scale_out_efficiency: float = 0.85

    @property
    def hbm_bytes_per_s(self) -> float:
        return _value(self.chip.hbm_bytes_per_s.value, self.chip, "hbm_bytes_per_s")

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s at which ``dtype`` arithmetic runs on this chip."""
        key, _ = compute_dtype(self.chip, dtype)
        return _value(self.chip.peak_flops[key].value, self.chip, f"peak_flops.{key}")

    def _reached(self, e_c: float, dtype: str) -> float:
        """Fraction of this chip's peak that a kernel reaches, from the measured chip's fraction.

        What keeps a kernel from its peak (issue, shared memory, epilogues) costs time of its own: on a die with the measured
        one's memory system and fewer FLOP/s (H20 against H200) that time stays, so 1/e - 1 shrinks with the ratio of the peaks.
        """
        reference = self.tables["peak"]
        if self.measured or self.hbm_bytes_per_s < CUT_DIE_BANDWIDTH * float(reference["hbm"]) * GIGA:
            return e_c
        key, _ = compute_dtype(self.chip, dtype)
        ratio = self.peak(dtype) / (float(reference.get(key, reference["bf16"])) * 1e12)
        return 1.0 / (1.0 + (1.0 / min(e_c, 1.0) - 1.0) * ratio) if ratio < CUT_DIE_PEAK else e_c

    def gemm(self, dtype: str) -> GemmKernel:
        """Dense GEMM of weights stored as ``dtype``."""
        kernel, (e_c, m_half, e_m, t0_us, *_) = self._first("gemm", _GEMM_CHAIN[dtype])
        _, (_, _, _, plain_t0_us, *_) = self._first("gemm", ("bf16",))
        t0_us = min(t0_us, plain_t0_us)  # the micro-benchmark counts the quantisation of activations, which engines fuse
        e_c = self._reached(e_c, _PEAK_OF[kernel])
        return GemmKernel(e_c * self.peak(_PEAK_OF[kernel]), m_half, e_m * self.hbm_bytes_per_s, t0_us * MICRO, e_c, e_m)

    def moe(self, dtype: str) -> MoeKernel:
        """Grouped GEMM of experts stored as ``dtype``."""
        kernel, (e_c, m_half, e_m, t0_us, e_a, *_) = self._first("moe", _MOE_CHAIN[dtype])
        bandwidth = self.hbm_bytes_per_s
        e_c = self._reached(e_c, _PEAK_OF[kernel])
        return MoeKernel(e_c * self.peak(_PEAK_OF[kernel]), m_half, e_m * bandwidth, min(e_a, 1.0) * bandwidth, t0_us * MICRO, e_c, e_m)

    def decode_attention(self, kv_dtype: str) -> AttentionKernel:
        """Attention core of decode, GQA or MHA."""
        _, (e_m, e_c, t0_us, *_) = self._first("decode_attention", (kv_dtype, "bf16"))
        e_c = self._reached(e_c, "bf16")
        return AttentionKernel(e_c * self.peak("bf16"), e_m * self.hbm_bytes_per_s, t0_us * MICRO, e_c, e_m)

    def prefill_attention(self, kv_dtype: str) -> AttentionKernel:
        """Attention core of prefill, causal."""
        kernel, (e_c, s_half, t0_us, *_) = self._first("prefill_attention", (kv_dtype, "bf16"))
        read = self.decode_attention(kv_dtype)
        e_c = self._reached(e_c, _PEAK_OF[kernel])
        return AttentionKernel(e_c * self.peak(_PEAK_OF[kernel]), read.bytes_per_s, t0_us * MICRO, e_c, read.memory_share, s_half)

    def mla_decode(self, kv_dtype: str) -> AttentionKernel:
        """Absorbed multi-head latent attention of decode."""
        _, (e_c, e_m, t0_us, *_) = self._first("mla_decode", (kv_dtype, "bf16"), fallback="h100_sxm")
        e_c = self._reached(e_c, "bf16")
        return AttentionKernel(e_c * self.peak("bf16"), e_m * self.hbm_bytes_per_s, t0_us * MICRO, e_c, e_m)

    def mla_prefill(self, kv_dtype: str) -> AttentionKernel:
        """Multi-head latent attention of prefill, keys and values expanded."""
        _, (e_c, s_half, t0_us, *_) = self._first("mla_prefill", (kv_dtype, "bf16"), fallback="h100_sxm")
        read = self.mla_decode(kv_dtype)
        e_c = self._reached(e_c, "bf16")
        return AttentionKernel(e_c * self.peak("bf16"), read.bytes_per_s, t0_us * MICRO, min(e_c, 1.0), read.memory_share, s_half)

    def all_reduce(self, ranks: int) -> Collective:
        """All-reduce among ``ranks`` GPUs; beyond the scale-up domain the NIC's share binds."""
        table = self._engine_table("all_reduce")
        return self._collective(table, ranks, 2.0)

    def exchange(self, ranks: int) -> Collective:
        """All-to-all (or gather and scatter) among ``ranks`` GPUs over general-purpose collectives."""
        return self._collective(self.tables["nccl_alltoall"], ranks, 1.0)

    @property
    def domain(self) -> int:
        """GPUs inside one scale-up domain."""
        return max(int(self.chip.scaleup_domain.value or 1), 1)

    def expert_exchange(self, ranks: int, low_latency: bool, copies: float) -> tuple[Collective, Collective]:
        """Dispatch and combine of expert parallelism; bytes counted once per token and copy (``copies`` a token).

        Low latency: every copy that leaves the domain takes the NIC. Normal: one copy per domain does, and is spread inside.
        """
        table = self.tables.get("expert_exchange") or _tables()["h100_sxm"]["expert_exchange"]
        mode = "low_latency" if low_latency else "normal"
        link = self._link_scale()
        pair = []
        for phase in ("dispatch", "combine"):
            alpha_us, rate, *_ = table[f"{mode}_{phase}"]
            inside = rate * GIGA * link
            spread = self._spread_rate(inside, ranks, copies) if not low_latency else self._wire_rate(inside, ranks)
            pair.append(Collective(alpha_us * MICRO, spread))
        return pair[0], pair[1]

    def _collective(self, table: Mapping[int, list[float]], ranks: int, trips: float) -> Collective:
        """``trips``: passes over the wire, 2 for a reduction (volume factor 2 (n-1)/n), 1 for an exchange."""
        if ranks <= 1:
            return Collective(0.0, float("inf"))
        known = sorted(table)
        nearest = min(known, key=lambda n: abs(n - min(ranks, known[-1])))
        alpha_us, rate, *_ = table[nearest]
        alpha_s = alpha_us * MICRO
        if ranks > self.domain:
            alpha_s *= 2.0
        return Collective(alpha_s, self._wire_rate(rate * GIGA * self._link_scale(), ranks) / (trips * (ranks - 1) / ranks))

    def _spread_rate(self, inside: float, ranks: int, copies: float) -> float:
        """Bytes/s of all copies when each domain gets one copy over the NIC and fans it out; both legs overlap."""
        domains = ranks / self.domain
        if domains <= 1.0:
            return inside
        reached = domains * (1.0 - (1.0 - 1.0 / domains) ** copies) * (1.0 - 1.0 / domains)
        nic = _value(self.chip.scaleout_bytes_per_s.value, self.chip, "scaleout_bytes_per_s") * self.scale_out_efficiency
        return float(min(inside, nic * copies / reached))

    def _link_scale(self) -> float:
        """This chip's scale-up link over that of the measured chip."""
        if self.measured:
            return 1.0
        link = self.chip.scaleup_bytes_per_s.value or self.chip.scaleout_bytes_per_s.value
        return _value(link, self.chip, "scaleup_bytes_per_s") / (float(self.tables["peak"]["link"]) * GIGA)

    def _wire_rate(self, scale_up_rate: float, ranks: int) -> float:
        """Bytes/s per rank: the share of traffic that leaves the scale-up domain goes at the NIC's rate."""
        if ranks <= self.domain:
            return scale_up_rate
        outside = 1.0 - self.domain / ranks
        nic = _value(self.chip.scaleout_bytes_per_s.value, self.chip, "scaleout_bytes_per_s") * self.scale_out_efficiency
        return 1.0 / (outside / nic + (1.0 - outside) / scale_up_rate)

    def _engine_table(self, name: str) -> Mapping[Any, Any]:
        entry = self.tables[name]
        engine = next(e for e in _ENGINE_ORDER[self.engine] if e in entry)
        table: Mapping[Any, Any] = entry[engine]
        return table

    def _first(self, name: str, chain: tuple[str, ...], fallback: str = "") -> tuple[str, list[float]]:
        """First measured format of ``chain``, this engine's kernels before another engine's."""
        sources = [self.tables.get(name, {})] + ([_tables()[fallback][name]] if fallback else [])
        for source in sources:
            for key in chain:
                for engine in _ENGINE_ORDER[self.engine]:
                    row = source.get(engine, {}).get(key)
                    if row is not None:
                        return key, row
        raise InputError(
            Problem(f"chip {self.chip.slug}", f"no {name} kernel for {chain[0]}", "a chip profile whose efficiency_of is measured")
        )


def _value(value: float | None, chip: Chip, what: str) -> float:
    if value is None or value <= 0:
        raise InputError(Problem(f"chip {chip.slug} {what}", "not given", "a positive number", "see pddplan profiles add"))
    return value


def kernel_set(chip: Chip, engine: str) -> KernelSet:
    """Kernels of ``chip`` under ``engine`` (vllm, sglang, trtllm, generic). Raises InputError for an unknown name."""
    if engine not in _ENGINE_ORDER:
        raise InputError(Problem("engine", repr(engine), "one of " + ", ".join(_ENGINE_ORDER), "vllm"))
    tables = _tables()
    if chip.efficiency_of not in tables:
        raise InputError(Problem(f"chip {chip.slug} efficiency_of", repr(chip.efficiency_of), "one of " + ", ".join(tables), "h100_sxm"))
    return KernelSet(chip, engine, tables[chip.efficiency_of], chip.efficiency_kind == "measured")
