"""Reduction of any number of requests to a few thousand weighted atoms that keep their joint structure.

Atoms are requests of the trace: those that hold the quantiles of a margin, or of the uncached length in a decile of the
output length, and one of each stratum of the uncached length in those deciles, at a low-discrepancy place in its order of
input length. Weights are then raked (Deming and Stephan, Ann. Math. Stat. 11 (1940) 427) until every bin between quantiles
has its mass in the full trace, and calibrated (Deville and Sarndal, JASA 87 (1992) 376) to its exact means.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pddplan.workload.mix import ClassRows

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_OUTPUT_BINS = 10
_LEVELS = np.array([0.01, *np.arange(0.05, 0.951, 0.05), 0.925, 0.97, 0.98, 0.99, 0.995, 0.999])
_JOINT_LEVELS = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99])
_RAKING_ROUNDS = 20
_CALIBRATION_ROUNDS = 12


def reduce_requests(
    input_tokens: FloatArray,
    uncached_tokens: FloatArray,
    md_missing_tokens: FloatArray,
    output_tokens: FloatArray,
    *,
    rows: int,
) -> ClassRows:
    """At most ``rows`` atoms for equally likely requests, shape (requests,) each; all of them where they are that few."""
    table = np.stack([input_tokens, uncached_tokens, md_missing_tokens, output_tokens]).astype(np.float64)
    requests = table.shape[1]
    if requests <= rows:
        return _class_rows(table, np.full(requests, 1.0 / requests))
    length, uncached, _, output = table
    decile = np.searchsorted(_edges(output, np.arange(1, _OUTPUT_BINS) / _OUTPUT_BINS), output, side="left")
    groups = [np.flatnonzero(decile == d) for d in np.unique(decile)]

    partitions, pinned = [], []
    for values in table:
        edges = _edges(values, np.sort(_LEVELS))
        partitions.append(np.searchsorted(edges, values, side="left"))
        pinned.append(_holders(values, np.arange(requests), edges))
    for members in groups:
        edges = _edges(uncached[members], _JOINT_LEVELS)
        joint = np.zeros(requests, dtype=np.int64)
        joint[members] = 1 + np.searchsorted(edges, uncached[members], side="left")
        partitions.append(joint)
        pinned.append(_holders(uncached, members, edges))
    pins = np.unique(np.concatenate(pinned))

    chosen, weight = _choose(length, uncached, groups, pins, rows)
    partitions = [_occupied(index, chosen) for index in partitions]
    shares = [np.bincount(index) / requests for index in partitions]
    bins = [index[chosen] for index in partitions]
    weight = _rake(weight, shares, bins)
    moments = _moments(table)
    weight = _calibrate(weight, shares, bins, moments[:, chosen], moments.mean(axis=1))
    return _class_rows(table[:, chosen], weight)


def _class_rows(table: FloatArray, weight: FloatArray) -> ClassRows:
    length, uncached, missing, output = table
    return ClassRows(length, uncached, missing, output, weight).merged()


def _moments(table: FloatArray) -> FloatArray:
    """What the loads and waits downstream are made of: first and second moments, and attention work u (L - u / 2) with its square."""
    length, uncached, missing, output = table
    attention = uncached * (length - uncached / 2)
    return np.stack([*table, uncached**2, missing**2, output**2, length * output, attention, attention**2])


def _edges(values: FloatArray, levels: FloatArray) -> FloatArray:
    """Quantiles of ``values`` that are values themselves, without repeats."""
    return np.unique(np.quantile(values, levels, method="inverted_cdf"))


def _holders(values: FloatArray, members: IntArray, edges: FloatArray) -> IntArray:
    """For each edge one request among ``members`` that has this very value."""
    order = members[np.argsort(values[members], kind="stable")]
    return order[np.searchsorted(values[order], edges, side="left")]


def _strata(requests: int, atoms: int) -> IntArray:
    """Ends of ``atoms`` strata of ordered requests: three in four evenly, one in four geometrically in the upper tail."""
    if atoms >= requests:
        return np.arange(1, requests + 1)
    body = np.linspace(0, 1, atoms - atoms // 4 + 1)[1:]
    tail = 1 - np.geomspace(0.2, 0.5 / requests, atoms // 4)
    return np.unique(np.ceil(np.concatenate((body, tail)) * requests).astype(np.int64))


def _choose(length: FloatArray, uncached: FloatArray, groups: list[IntArray], pins: IntArray, rows: int) -> tuple[IntArray, FloatArray]:
    """Atoms and their first weights: a stratum's mass is shared by its pinned requests, or goes to one of its requests."""
    pinned = np.zeros(length.size, dtype=bool)
    pinned[pins] = True
    chosen: list[IntArray] = []
    mass: list[FloatArray] = []
    place = 0.5
    for members in groups:
        members = members[np.lexsort((length[members], uncached[members]))]
        start = 0
        for end in _strata(members.size, max(2, round((rows - pins.size) * members.size / length.size))):
            stratum = members[start:end]
            atoms = stratum[pinned[stratum]]
            if atoms.size == 0:
                place = (place + 0.6180339887498949) % 1.0
                atoms = stratum[np.argsort(length[stratum], kind="stable")][[int(place * stratum.size)]]
            chosen.append(atoms)
            mass.append(np.full(atoms.size, stratum.size / atoms.size / length.size))
            start = end
    return np.concatenate(chosen), np.concatenate(mass)


def _occupied(index: IntArray, chosen: IntArray) -> IntArray:
    """Bins without an atom are joined with the next one that has some (the last ones with the one before)."""
    has_atom = np.unique(index[chosen])
    return np.minimum(np.searchsorted(has_atom, index, side="left"), has_atom.size - 1)


def _rake(weight: FloatArray, shares: list[FloatArray], bins: list[IntArray]) -> FloatArray:
    """Weights scaled bin by bin and partition by partition; shares: mass of each bin, bins: each atom's, per partition."""
    for _ in range(_RAKING_ROUNDS):
        for share, bin_of in zip(shares, bins, strict=True):
            have = np.bincount(bin_of, weights=weight, minlength=share.size)
            weight = weight * (share / have)[bin_of]
    return weight


def _calibrate(weight: FloatArray, shares: list[FloatArray], bins: list[IntArray], table: FloatArray, means: FloatArray) -> FloatArray:
    """Least relative change of the weights that gives every bin its share and every column its mean, none under a tenth."""
    scale = np.maximum(means, 1e-9)
    atoms = weight.size
    indicators = [
        sparse.csr_array((np.ones(atoms), (bin_of, np.arange(atoms))), (share.size, atoms))
        for share, bin_of in zip(shares, bins, strict=True)
    ]
    moments = sparse.vstack([*indicators, sparse.csr_array(table / scale[:, None])]).tocsr()
    wanted = np.concatenate([*shares, means / scale])
    floor = 0.1 * weight
    for _ in range(_CALIBRATION_ROUNDS):
        gram = sparse.csr_array((moments * weight) @ moments.T).toarray()
        gram[np.diag_indices_from(gram)] += 1e-11  # the bins of every partition sum to the same 1: the system has slack
        weight = weight * (1 + np.linalg.solve(gram, wanted - moments @ weight) @ moments)
        if np.all(weight >= floor) and np.abs(moments @ weight - wanted).max() < 1e-9:
            break
        weight = np.maximum(weight, floor)
    return np.asarray(weight / weight.sum(), dtype=np.float64)
