"""The deployment as an inline SVG: rooms, the pools in them, and the lines between, with how busy each is."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from pddplan.pdd.plan import Evaluation, LinkResult, PoolResult
from pddplan.report.numbers import percent
from pddplan.report.palette import GREEN, ORANGE, ROLE, VERMILION
from pddplan.units import GBPS_BYTES_PER_S

Translate = Callable[..., str]

ROOM_WIDTH, CARD_HEIGHT, CARD_GAP, PADDING, GAP_BETWEEN_ROOMS = 330, 104, 14, 18, 200
TITLE_HEIGHT = 44
CHARACTERS_PER_LINE = 40


def deployment_svg(evaluation: Evaluation, chip_names: dict[str, str], t: Translate) -> str:
    """Rooms side by side in order of first pool, joined by their links. ``chip_names``: slug to the name people use."""
    ends = [site for result in evaluation.links for site in (result.link.from_site, result.link.to_site)]
    sites = list(dict.fromkeys([*(result.pool.configuration.site for result in evaluation.pools), *ends]))
    by_site = {site: [r for r in evaluation.pools if r.pool.configuration.site == site] for site in sites}
    rows = max((len(results) for results in by_site.values()), default=0)
    room_height = TITLE_HEIGHT + rows * (CARD_HEIGHT + CARD_GAP) + PADDING
    width = len(sites) * ROOM_WIDTH + max(len(sites) - 1, 0) * GAP_BETWEEN_ROOMS + 2 * PADDING
    lines = _lines_between(evaluation.links, sites, room_height, t)
    height = room_height + 2 * PADDING + max(0, len(evaluation.links) - 1) * 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" style="min-width:{min(width, 640)}px;max-width:{width}px" '
        'font-family="inherit" font-size="14" fill="var(--ink)">',
    ]
    for index, site in enumerate(sites):
        parts.append(_room(site, by_site[site], _room_x(index), room_height, chip_names, t))
    parts.extend(lines)
    parts.append("</svg>")
    return "".join(parts)


def deployment_summary(evaluation: Evaluation, chip_names: dict[str, str], t: Translate) -> str:
    """The drawing in one paragraph, for those who cannot see it."""
    pools = [
        t(
            "diagram.pool_text",
            role=r.pool.configuration.role,
            instances=r.pool.instances,
            gpus=r.pool.configuration.gpus_per_instance,
            chip=chip_names.get(r.pool.configuration.chip, r.pool.configuration.chip),
            site=r.pool.configuration.site,
            used=percent(r.utilisation),
        )
        for r in evaluation.pools
    ]
    links = [t("diagram.link_text", circuits=_circuits(link), used=percent(link.utilisation)) for link in evaluation.links]
    return " ".join(pools + links)


def _room_x(index: int) -> float:
    return PADDING + index * (ROOM_WIDTH + GAP_BETWEEN_ROOMS)


def _room(site: str, results: list[PoolResult], x: float, height: float, chip_names: dict[str, str], t: Translate) -> str:
    title = t("diagram.room", site=site)
    parts = [
        f'<rect x="{x}" y="{PADDING}" width="{ROOM_WIDTH}" height="{height}" rx="10" fill="var(--room)" stroke="var(--room-line)"/>',
        f'<text x="{x + PADDING}" y="{PADDING + 28}" font-weight="600" font-size="16">{_short(title)}</text>',
    ]
    for index, result in enumerate(results):
        y = PADDING + TITLE_HEIGHT + index * (CARD_HEIGHT + CARD_GAP)
        parts.append(_card(result, x + PADDING, y, ROOM_WIDTH - 2 * PADDING, chip_names, t))
    return "".join(parts)


def _card(result: PoolResult, x: float, y: float, width: float, chip_names: dict[str, str], t: Translate) -> str:
    configuration, pool = result.pool.configuration, result.pool
    chip = chip_names.get(configuration.chip, configuration.chip)
    size = t("diagram.instances", instances=pool.instances, gpus=configuration.gpus_per_instance, chip=chip)
    parallel = configuration.parallel
    mapping = (
        f"TP{parallel.tp} PP{parallel.pp} EP{parallel.moe_ep} DP{parallel.dp} · {configuration.engine}"
        if configuration.profile is None
        else configuration.engine
    )
    bar_width = width - 24
    used = min(1.0, max(0.0, result.utilisation))
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{CARD_HEIGHT}" rx="6" fill="var(--paper)" stroke="var(--room-line)"/>'
        f'<rect x="{x}" y="{y}" width="6" height="{CARD_HEIGHT}" rx="3" fill="{ROLE[configuration.role]}"/>'
        f'<text x="{x + 14}" y="{y + 22}" font-weight="600">{escape(t(f"role.{configuration.role}"))}</text>'
        f'<text x="{x + 14}" y="{y + 42}">{_short(size)}</text>'
        f'<text x="{x + 14}" y="{y + 61}" font-size="12.5">{_short(mapping)}</text>'
        f'<rect x="{x + 14}" y="{y + 72}" width="{bar_width}" height="7" rx="3.5" fill="var(--line)"/>'
        f'<rect x="{x + 14}" y="{y + 72}" width="{bar_width * used:.1f}" height="7" rx="3.5" fill="{_load_colour(result.utilisation)}"/>'
        f'<text x="{x + 14}" y="{y + 96}" font-size="12.5">{escape(t("diagram.used", used=percent(result.utilisation)))}</text>'
    )


def _lines_between(links: tuple[LinkResult, ...], sites: list[str], room_height: float, t: Translate) -> list[str]:
    parts = []
    for index, result in enumerate(links):
        if result.link.from_site not in sites or result.link.to_site not in sites:
            continue
        start, end = sorted((sites.index(result.link.from_site), sites.index(result.link.to_site)))
        x1, x2 = _room_x(start) + ROOM_WIDTH, _room_x(end)
        adjacent = end == start + 1
        y = PADDING + room_height / 2 + index * 56 if adjacent else PADDING + room_height + 24 + index * 30
        colour = _load_colour(result.utilisation)
        middle = (x1 + x2) / 2
        parts.append(f'<line x1="{x1}" y1="{y}" x2="{x2}" y2="{y}" stroke="{colour}" stroke-width="5"/>')
        parts.append(f'<text x="{middle}" y="{y - 12}" text-anchor="middle" font-weight="600">{escape(_circuits(result))}</text>')
        used = escape(t("diagram.used", used=percent(result.utilisation)))
        parts.append(f'<text x="{middle}" y="{y + 22}" text-anchor="middle" font-size="12.5">{used}</text>')
    return parts


def _circuits(result: LinkResult) -> str:
    return f"{result.link.circuits} × {result.link.circuit_bytes_per_s / GBPS_BYTES_PER_S:g} Gbps"


def _load_colour(utilisation: float) -> str:
    if utilisation < 0.7:
        return GREEN
    return ORANGE if utilisation < 0.9 else VERMILION


def _short(text: str) -> str:
    """Escaped, cut to what a card holds."""
    return escape(text if len(text) <= CHARACTERS_PER_LINE else text[: CHARACTERS_PER_LINE - 1] + "…")
