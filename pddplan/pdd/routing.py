"""Routing: each request row in each state of the line becomes an atom that is sent straight to MD, relayed, or finished on RLD.

When prefill ends the transfer's time X is predicted from its bytes and the rate one more transfer would get. X over the relay threshold:
RLD streams n = min(O, ceil((X - X_rdma) / tau_R)) tokens meanwhile. An answer that ends on RLD before X has become local: the transfer
stops, and what was sent has loaded the line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pddplan.pdd.flows import Flow
from pddplan.pdd.plan import PipelineName, Settings
from pddplan.pdd.transfer import LineState, visible_transfer_s

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Atoms:
    """Atoms of one flow, every array of shape (atoms,).

    row: index into the mix. weight: share of the deployment's requests. transfer_s: what is left of the transfer after prefill (wait for a
    connection and RTT included). relayed: goes through RLD; local: ends there. eager_tokens: emitted by RLD while the transfer runs (all of
    O for local ones). hold_s: RLD residence meanwhile. sent_bytes: what crosses the line.
    """

    flow: Flow
    row: IntArray
    weight: FloatArray
    transfer_s: FloatArray
    flow_bytes_per_s: FloatArray
    relayed: BoolArray
    local: BoolArray
    eager_tokens: FloatArray
    hold_s: FloatArray
    sent_bytes: FloatArray

    def pipeline(self, name: PipelineName) -> BoolArray:
        """Mask of the atoms that take a pipeline."""
        ends_there = self.flow.deployment.policy.relayed_end == "rld"
        if name == "P-MD":
            return ~self.relayed
        if name == "P-RLD":
            return self.relayed & self.local if ends_there else np.zeros_like(self.relayed)
        if name == "local":
            return np.zeros_like(self.relayed) if ends_there else self.relayed & self.local
        return self.relayed & ~self.local


def route(flow: Flow, line: LineState | None, rld_token_s: float, settings: Settings) -> Atoms:
    """Atoms of ``flow`` when the line is in state ``line`` and RLD emits a token every ``rld_token_s``."""
    mix, policy = flow.deployment.mix, flow.deployment.policy
    rows = np.nonzero(flow.share > 0.0)[0]
    if flow.line is None or line is None:
        no = np.zeros(rows.size, dtype=bool)
        zero = np.zeros(rows.size)
        ready = np.maximum(flow.room_s, flow.load_s)[rows]
        return Atoms(flow, rows, flow.share[rows], ready, zero + np.inf, no, no, zero, zero, zero)
    nodes = line.probability.size
    row = np.repeat(rows, nodes)
    weight = np.repeat(flow.share[rows], nodes) * np.tile(line.probability, rows.size)
    rate = np.tile(line.bytes_per_s, rows.size)
    wait = np.tile(line.wait_s, rows.size)
    size = flow.line_bytes[row]
    moving = size > 0.0
    on_wire = np.where(moving, line.wire_s(flow.line_bytes[rows]).ravel(), 0.0)
    rate = np.where(moving & (on_wire > 0.0), size / np.where(on_wire > 0.0, on_wire, 1.0), rate)
    prefill = flow.prefill.latency_s[row]
    visible = visible_transfer_s(
        on_wire,
        prefill,
        mix.uncached_tokens[row],
        policy.overlap,
        len(flow.deployment.spec.layers),
        settings.prefill_chunk_tokens,
    )
    transfer = np.maximum(np.where(moving, wait + visible, 0.0) + flow.line.rtt_s, flow.load_s[row])
    output = mix.output_tokens[row]
    hop = flow.hop_s[row]
    can_relay = flow.rld is not None and settings.relay_threshold_s is not None
    oracle = np.zeros(row.size, dtype=bool)
    relayed = np.zeros(row.size, dtype=bool)
    if can_relay:
        assert settings.relay_threshold_s is not None
        relayed = transfer > settings.relay_threshold_s
        singular = flow.deployment.singular
        if singular is not None and singular.mode == "oracle":
            oracle = (mix.uncached_tokens[row] > settings.singular_uncached_over) & (output < settings.singular_output_under)
            relayed = relayed | oracle
    answer_s = hop + output * rld_token_s
    ends_there = policy.relayed_end == "rld"
    local = relayed & ((answer_s <= transfer) | oracle | ends_there)
    eager = np.where(relayed, np.minimum(output, np.ceil(np.maximum(transfer - hop, 0.0) / rld_token_s)), 0.0)
    eager = np.where(local, output, np.maximum(eager, np.where(relayed, 1.0, 0.0)))
    hold = np.where(local, output * rld_token_s, np.where(relayed, np.maximum(transfer - hop, rld_token_s), 0.0))
    stops = local if flow.deployment.singular is not None else np.zeros(row.size, dtype=bool)
    running = np.maximum(answer_s - wait - flow.line.rtt_s, 0.0)
    sent = np.where(stops, np.minimum(size, running * rate), size)
    sent = np.where(local & (oracle | ends_there), 0.0, sent)
    return Atoms(flow, row, weight, transfer, rate, relayed, local, eager, hold, sent)
