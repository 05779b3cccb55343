"""models list, show, fit: what is understood of a model, and where it fits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pddplan.cli.common import ForceOption, JsonOption, console, print_table, write_json

if TYPE_CHECKING:
    from pddplan.model.kv_cache import KvCache
    from pddplan.model.spec import ModelSpec

app = typer.Typer(
    no_args_is_help=True, help="List, show and fit models.\n\nExample: pddplan models show deepseek-ai/DeepSeek-V3 --context 64k"
)

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="A shipped name, a config.json or a folder that holds one.")]
ContextOption = Annotated[str, typer.Option("--context", metavar="N", help="Tokens of one request, such as 8192, 64k or 64Ki.")]
ConcurrencyOption = Annotated[int, typer.Option("--concurrency", metavar="B", help="Requests held at once in the instance.")]
TpOption = Annotated[int | None, typer.Option("--tp", help="Tensor-parallel GPUs.")]
PpOption = Annotated[int, typer.Option("--pp", help="Pipeline stages.")]
DpOption = Annotated[int, typer.Option("--dp", help="Attention data-parallel ranks inside the instance.")]
EpOption = Annotated[int | None, typer.Option("--ep", help="Expert-parallel ranks. [default: 1; all ranks with --dp]")]
MoeTpOption = Annotated[int | None, typer.Option("--moe-tp", help="Ways each expert is cut. [default: tp x dp / ep]")]
RedundantOption = Annotated[int, typer.Option("--redundant-experts", help="Copies of experts beyond the model's own.")]
KvOption = Annotated[str | None, typer.Option("--kv-dtype", metavar="FORMAT", help="KV format: bf16, fp8, int4, fp8_ds_mla, nominal ...")]
WeightsOption = Annotated[str, typer.Option("--weights", metavar="FORMAT", help="checkpoint, or stored as bf16, fp8, nvfp4, int4 ...")]
EngineOption = Annotated[str, typer.Option("--engine", help="vllm, sglang, trtllm or generic: what the memory fraction means.")]
PageOption = Annotated[int, typer.Option("--page-size", min=1, metavar="TOKENS", help="Tokens of one KV page.")]
UnifiedOption = Annotated[bool, typer.Option("--unified-pages", help="Windowed layers keep all tokens, as with one page pool.")]
SlackOption = Annotated[int, typer.Option("--window-slack", min=0, metavar="TOKENS", help="Tokens kept beyond each window.")]


@app.command("list")
def list_models(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Part of a name.")] = "",
    json_: JsonOption = None,
    force: ForceOption = False,
) -> None:
    """List the shipped models with parameters, weights and KV.

    Example: pddplan models list qwen3
    """
    from pddplan.model.catalog import load_model, model_names
    from pddplan.model.kv_cache import kv_cache
    from pddplan.model.weights import parameters, weight_bytes

    rows: list[dict[str, Any]] = []
    for name in model_names():
        if pattern.lower() not in name.lower():
            continue
        model = load_model(name)
        counted, cache = parameters(model), kv_cache(model)
        rows.append({
            "name": name, "params": counted.total, "params_active": counted.active, "weight_bytes": weight_bytes(model),
            "kv_format": cache.format, "kv_bytes_per_token": cache.slope, "kv_bytes_per_request_constant": cache.constant + cache.cap,
            "validated": model.validated,
        })
    if json_ is not None:
        write_json({"schema_version": 1, "models": rows}, json_, force)
        if json_ == "-":
            return
    from rich.table import Table

    headers = ("params (B)", "active (B)", "weights (GB)", "KV format", "KV B/token", "KV MB/request")
    table = Table("model", *headers, box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            row["name"], f"{row['params'] / 1e9:.2f}", f"{row['params_active'] / 1e9:.2f}", f"{row['weight_bytes'] / 1e9:.1f}",
            row["kv_format"], f"{row['kv_bytes_per_token']:,.0f}", f"{row['kv_bytes_per_request_constant'] / 1e6:.2f}",
        )
    print_table(table)


@app.command()
def show(
    model: ModelArgument,
    context: ContextOption = "4096",
    concurrency: ConcurrencyOption = 1,
    tp: TpOption = None,
    pp: PpOption = 1,
    dp: DpOption = 1,
    ep: EpOption = None,
    moe_tp: MoeTpOption = None,
    redundant_experts: RedundantOption = 0,
    kv_dtype: KvOption = None,
    weights: WeightsOption = "checkpoint",
    engine: EngineOption = "vllm",
    kv_budget: Annotated[
        str | None, typer.Option("--kv-budget", metavar="SIZE", help="Say how many tokens fit, such as '3.81 GiB'.")
    ] = None,
    page_size: PageOption = 16,
    unified_pages: UnifiedOption = False,
    window_slack: SlackOption = 0,
    json_: JsonOption = None,
    force: ForceOption = False,
) -> None:
    """Show what was understood of a model: layers, parameters, weights, KV cache, FLOPs, and the formula with its numbers.

    Example: pddplan models show deepseek-ai/DeepSeek-V3 --context 64k --concurrency 80 --tp 8
    """
    from pddplan.model.describe import describe
    from pddplan.model.fit import mapping, require_legal
    from pddplan.model.memory import engine_preset

    spec, cache, tokens = _read(model, weights, kv_dtype, context, concurrency, unified_pages, window_slack)
    engine_preset(engine)
    parallel = mapping(spec, tp=tp, pp=pp, dp=dp, ep=ep, moe_tp=moe_tp, redundant_experts=redundant_experts)
    with _ProblemsAsJson(json_, force):
        require_legal(spec, parallel)
    budget = None if kv_budget is None else _size("--kv-budget", kv_budget)
    document = describe(
        spec, cache, parallel, context_tokens=tokens, concurrency=concurrency, budget_bytes=budget, page_tokens=page_size
    )
    if json_ is not None:
        write_json(document, json_, force)
        if json_ == "-":
            return
    _print_model(document)


@app.command()
def fit(
    model: ModelArgument,
    chip: Annotated[str, typer.Argument(metavar="CHIP", help="A chip's name or file, or a memory size such as '80 GiB'.")],
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="GPUs of the instance; the mapping is chosen unless --tp names it.")
    ] = None,
    context: ContextOption = "4096",
    concurrency: ConcurrencyOption = 1,
    tp: TpOption = None,
    pp: PpOption = 1,
    dp: DpOption = 1,
    ep: EpOption = None,
    moe_tp: MoeTpOption = None,
    redundant_experts: RedundantOption = 0,
    kv_dtype: KvOption = None,
    weights: WeightsOption = "checkpoint",
    engine: EngineOption = "vllm",
    memory_fraction: Annotated[float | None, typer.Option("--memory-fraction", help="In place of the engine's default.")] = None,
    activations: Annotated[str | None, typer.Option("--activations", metavar="SIZE", help="Peak of a forward pass, per GPU.")] = None,
    graphs: Annotated[str | None, typer.Option("--graphs", metavar="SIZE", help="CUDA graphs, per GPU.")] = None,
    framework: Annotated[str | None, typer.Option("--framework", metavar="SIZE", help="Other memory of the engine, per GPU.")] = None,
    page_size: PageOption = 16,
    unified_pages: UnifiedOption = False,
    window_slack: SlackOption = 0,
    json_: JsonOption = None,
    force: ForceOption = False,
) -> None:
    """Say whether a model fits on a chip: a memory waterfall, the verdict, what is missing, and the smallest mapping that fits.

    Example: pddplan models fit deepseek-ai/DeepSeek-V3 h200-sxm --gpus 8 --context 32k --concurrency 16
    """
    from pddplan.errors import InputError, Problem
    from pddplan.model.fit import fit_document, mapping, mapping_for_gpus, nearest_counts, require_legal
    from pddplan.model.memory import Reserves, waterfall

    spec, cache, tokens = _read(model, weights, kv_dtype, context, concurrency, unified_pages, window_slack)
    hardware, capacity, chip_name = _chip(chip)
    own = Reserves(
        memory_fraction=memory_fraction,
        activation_bytes=_optional_size("--activations", activations),
        graph_bytes=_optional_size("--graphs", graphs),
        framework_bytes=_optional_size("--framework", framework),
    )
    if gpus is not None and gpus < 1:
        raise InputError(Problem("--gpus", str(gpus), "at least 1", "8"))
    parallel = mapping(spec, tp=tp, pp=pp, dp=dp, ep=ep, moe_tp=moe_tp, redundant_experts=redundant_experts)
    chosen_by_user = tp is not None or pp != 1 or dp != 1 or ep is not None
    with _ProblemsAsJson(json_, force):
        if gpus is not None and not chosen_by_user:

            def fits(option: Any) -> bool:
                result = waterfall(
                    spec, capacity, option, engine=engine, context_tokens=tokens, concurrency=concurrency, cache=cache, reserves=own
                )
                return result.verdict != "no"

            found = mapping_for_gpus(spec, hardware, gpus, fits)
            if found is None:
                unused = f"{gpus}: no legal mapping uses exactly that many"
                near = nearest_counts(spec, hardware, gpus)
                accepted = f"{' or '.join(map(str, near)) or 'another count'}; or name --tp, --pp and --dp"
                raise InputError(Problem("--gpus", unused, accepted, f"--gpus {near[-1]}" if near else ""))
            parallel = found
        require_legal(spec, parallel, gpus)
    document = fit_document(
        spec, cache, capacity, parallel, chip=hardware, chip_name=chip_name, context_tokens=tokens, concurrency=concurrency,
        engine=engine, reserves=own, page_tokens=page_size,
    )
    if json_ is not None:
        write_json(document, json_, force)
        if json_ == "-":
            return
    _print_fit(document)


class _ProblemsAsJson:
    """Writes the problems of an illegal mapping as JSON before the error goes its way."""

    def __init__(self, target: str | None, force: bool) -> None:
        self.target, self.force = target, force

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from pddplan.errors import InputError

        if self.target is not None and isinstance(error, InputError):
            problems = [{"place": p.place, "found": p.found, "accepted": p.accepted, "example": p.example} for p in error.problems]
            write_json({"schema_version": 1, "valid": False, "problems": problems}, self.target, self.force)


def _read(
    name: str, weights: str, kv_dtype: str | None, context: str, concurrency: int, unified: bool, slack: int
) -> tuple[ModelSpec, KvCache, float]:
    from pddplan.errors import InputError, Problem
    from pddplan.model.catalog import load_model
    from pddplan.model.config import with_weights
    from pddplan.model.kv_cache import kv_cache
    from pddplan.units import TOKENS, UnitError

    problems = []
    tokens = 0.0
    try:
        tokens = TOKENS.parse(context)
    except UnitError as error:
        problems.append(Problem("--context", error.found, error.accepted, error.example))
    if tokens < 0:
        problems.append(Problem("--context", context, "0 or more tokens", "8192"))
    if concurrency < 1:
        problems.append(Problem("--concurrency", str(concurrency), "at least 1 request", "1"))
    if problems:
        raise InputError(problems)
    spec = with_weights(load_model(name), weights)
    return spec, kv_cache(spec, kv_dtype, unified_pages=unified, window_slack_tokens=slack), tokens


def _size(option: str, text: str) -> float:
    from pddplan.errors import InputError, Problem
    from pddplan.units import BYTES, UnitError

    try:
        size = BYTES.parse(text)
    except UnitError as error:
        raise InputError(Problem(option, error.found, error.accepted, error.example)) from None
    if size < 0:
        raise InputError(Problem(option, text, "0 or more", "4 GiB"))
    return size


def _optional_size(option: str, text: str | None) -> float | None:
    return None if text is None else _size(option, text)


def _chip(name: str) -> tuple[Any, float, str]:
    """Chip, usable bytes and name; a memory size stands for a chip nobody described."""
    from pddplan.errors import InputError, Problem
    from pddplan.hardware import load_chip
    from pddplan.model.memory import visible_bytes
    from pddplan.units import BYTES, UnitError

    try:
        return None, BYTES.parse(name), name
    except UnitError as error:
        if re.fullmatch(r"[-\d.\s]+[kKMGT]i?[bB]\s*", name):
            raise InputError(Problem("CHIP", error.found, error.accepted, error.example)) from None
        chip = load_chip(name)
    if chip.hbm_bytes.value is None:
        raise InputError(Problem(f"chip {chip.slug}", "its memory is a range", "a memory size such as '80 GiB'"))
    return chip, visible_bytes(chip.hbm_bytes.value), chip.slug


def _print_model(document: dict[str, Any]) -> None:
    from rich.table import Table

    out = console()
    kv, weights = document["kv"], document["weights"]
    known = "" if document["validated"] else "  (unvalidated architecture)"
    out.print(f"[bold]{document['name']}[/bold]  {document['architecture']}{known}")
    layers = Table("layers", "attention", "FFN", "dimensions")
    for row in document["layers"]:
        rest = {key: value for key, value in row.items() if key not in ("count", "attention", "ffn")}
        layers.add_row(str(row["count"]), row["attention"], row["ffn"], ", ".join(f"{key} {value}" for key, value in rest.items()))
    print_table(layers)
    table = Table("quantity", "value", show_header=False)
    table.add_row("parameters", f"{weights['params']:,} ({weights['params_active']:,} active)")
    if weights["params_mtp"] or weights["params_vision"]:
        table.add_row("besides", f"MTP {weights['params_mtp']:,}, vision {weights['params_vision']:,}")
    table.add_row(
        "weights",
        f"{_gb(weights['bytes'])}, {_gb(weights['bytes_per_gpu'])} per GPU, {weights['bits_per_param']:.2f} bits a parameter",
    )
    table.add_row("KV growth", f"{kv['bytes_per_token']:,.2f} B/token ({kv['format']}), {kv['bytes_per_token_per_gpu']:,.2f} per GPU")
    table.add_row("KV constant", f"{kv['bytes_per_request_constant']:,.0f} B/request")
    for window in kv["windows"]:
        table.add_row("KV window", f"{window['tokens']:,.0f} tokens x {window['bytes_per_token']:,.0f} B")
    table.add_row(
        f"KV of {document['concurrency']} x {document['context_tokens']:,.0f} tokens",
        f"{_gb(kv['bytes_total'])}" + (f" (page-unified {_gb(kv['bytes_total_page_unified'])})" if kv["windows"] else ""),
    )
    table.add_row("FLOPs of one decoded token", f"{document['flops_per_token'] / 1e9:,.1f} GFLOP")
    if "budget" in kv:
        budget = kv["budget"]
        table.add_row(f"{_gb(budget['bytes'])} hold", f"{budget['tokens']:,} tokens in {budget['pages']:,} pages")
    print_table(table)
    for line in (*document["formulas"], *(f"note: {text}" for text in document["notes"])):
        out.print(line, markup=False)
    if document["ignored"]:
        out.print("ignored keys: " + ", ".join(document["ignored"]), markup=False)
    out.print("read from: " + ", ".join(f"{name} <- {key}" for name, key in document["origin"].items()), markup=False)


def _print_fit(document: dict[str, Any]) -> None:
    from rich.table import Table

    out = console()
    found, parallel = document["fit"], document["parallel"]
    place = f"{document['name']} on {parallel['gpus']} x {document['chip']} ({document['engine']})"
    out.print(f"[bold]{found['verdict']}[/bold]: {place}: {found['why']}")
    out.print(f"tp {parallel['tp']} x pp {parallel['pp']} x dp {parallel['dp']}, ep {parallel['ep']}", markup=False)
    table = Table("per GPU", "GiB", "GB")
    table.add_row("memory that a process can use", f"{found['capacity_bytes'] / 2**30:.2f}", f"{found['capacity_bytes'] / 1e9:.2f}")
    for row in found["waterfall"]:
        table.add_row(row["item"], f"{row['gib']:.2f}", f"{row['bytes'] / 1e9:.2f}")
    print_table(table)
    out.print(
        f"required {_gb(found['required_bytes'])} of {_gb(found['available_bytes'])} that the engine may use"
        + (f"; short by {found['shortfall_gib']:.2f} GiB" if found["shortfall_bytes"] else ""),
        markup=False,
    )
    pool = _gb(max(found["kv_pool_bytes"], 0.0))
    out.print(f"KV pool {pool}: {found['kv_tokens']:,} tokens, {found['max_concurrency']} such requests", markup=False)
    for text in document["notes"]:
        out.print(f"note: {text}", markup=False)


def _gb(size: float) -> str:
    return f"{size / 2**30:,.2f} GiB ({size / 1e9:,.2f} GB)"
