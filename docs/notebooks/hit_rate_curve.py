# %% [markdown]
# # A trace's hit rate, and the plan it implies
#
# How much of the prompts is in a prefix cache depends on how large the cache is. One pass over a recorded trace gives the whole curve
# (Mattson's stack distance); the planner reads the same curve.

# %%
from pddplan import load_scenario, optimize
from pddplan.data_files import data_root
from pddplan.model.catalog import load_model
from pddplan.model.kv_cache import kv_cache
from pddplan.workload.prefix_cache import cache_hits, p_sequence
from pddplan.workload.trace_reader import read_trace

trace = read_trace(data_root() / "scenarios" / "traces" / "mooncake_conversation.jsonl.gz", block_tokens=512)
print(f"{trace.requests:,} requests over {trace.span_s:,.0f} s, {trace.rate_per_s:.2f} req/s")

# %%
curve = cache_hits(p_sequence(trace)).curve
per_token = kv_cache(load_model("deepseek-ai/DeepSeek-V3")).slope
for tokens in (1e6, 5e6, 20e6, 100e6):
    print(f"{tokens / 1e6:>5.0f} M tokens = {tokens * per_token / 1e12:5.2f} TB of DeepSeek-V3's KV: {curve.hit_rate(tokens):6.2%} hit")
print(f"an unlimited cache hits {curve.highest:.2%}; half of that needs {curve.capacity_for(curve.highest / 2) / 1e6:.1f} M tokens")

assert 0 < curve.hit_rate(1e6) < curve.hit_rate(20e6) <= curve.highest < 1

# %% [markdown]
# The plan with a small cache and with a large one. Hits save prefill and nothing else: decode holds the whole context either way.

# %%
cost = {}
for cached in ("1M", "50M"):
    result = optimize(load_scenario("chat-trace", {"workload.trace.p_cache.tokens": cached}))
    cost[cached] = result.evaluation.metrics.cost_usd_per_h
    roles = ", ".join(f"{pool.pool.gpus} GPUs {pool.pool.configuration.role}" for pool in result.evaluation.pools)
    print(f"P cache of {cached} tokens: {roles}, {cost[cached]:.2f} USD/h")

assert cost["50M"] <= cost["1M"]
