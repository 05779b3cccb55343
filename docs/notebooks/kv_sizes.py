# %% [markdown]
# # KV sizes across architectures
#
# KV is not "bytes times tokens" for every model: latents, windows, compressed layers and linear attention each grow differently, and
# decide what crosses the line between two rooms.

# %%
import numpy as np

from pddplan.model.catalog import load_model
from pddplan.model.kv_cache import kv_cache

MODELS = {
    "meta-llama/Meta-Llama-3.1-70B": "grouped queries",
    "Qwen/Qwen3-32B": "grouped queries, own head size",
    "deepseek-ai/DeepSeek-V3": "latent (MLA)",
    "deepseek-ai/DeepSeek-V4-Pro": "compressed layers and windows",
    "openai/gpt-oss-120b": "half of the layers in a window",
    "Qwen/Qwen3.5-397B-A17B": "mostly linear attention",
}
tokens = np.array([4_096, 65_536, 1_048_576])
resident = {}
print(f"{'model':<32}{'B/token':>9}{'fixed MB':>10}" + "".join(f"{f'{n // 1024} Ki':>12}" for n in tokens))
for name, kind in MODELS.items():
    cache = kv_cache(load_model(name))
    resident[name] = np.asarray(cache.bytes_resident(tokens))
    fixed = cache.constant / 1e6
    held = "".join(f"{b / 1e9:>9.2f} GB" for b in resident[name])
    print(f"{name.split('/')[1]:<32}{cache.slope:>9,.0f}{fixed:>10.2f}{held}  {kind}")

assert kv_cache(load_model("meta-llama/Meta-Llama-3.1-70B")).slope == 327_680
assert kv_cache(load_model("deepseek-ai/DeepSeek-V3")).slope == 70_272

# %% [markdown]
# What a 64 Ki request with 90 % of its prompt cached on the far side sends over a 100 Gbit/s line at 90 % use, alone.

# %%
line_bytes_per_s = 0.9 * 100e9 / 8
for name in MODELS:
    cache = kv_cache(load_model(name))
    whole, rest = (float(cache.transfer_bytes(new, 65_536)) for new in (65_536, 6_554))
    print(f"{name.split('/')[1]:<32}{1e3 * whole / line_bytes_per_s:>8.1f} ms whole{1e3 * rest / line_bytes_per_s:>8.1f} ms with 90 % hit")
    assert rest < whole

# %% [markdown]
# Storing KV in fp8 halves it, whatever the weights are stored in.

# %%
llama = load_model("meta-llama/Meta-Llama-3.1-70B")
assert kv_cache(llama, "fp8").slope * 2 == kv_cache(llama, "bf16").slope
print(f"fp8 KV: {kv_cache(llama, 'fp8').slope:,.0f} B/token")
