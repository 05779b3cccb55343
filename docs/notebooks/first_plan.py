# %% [markdown]
# # A first plan, and what if
#
# Ten requests a second to a chat model on H100: how many chips, and how far does the plan carry?

# %%
from pddplan import InfeasibleError, load_scenario, optimize
from pddplan.pipeline import evaluate_plan

scenario = load_scenario("01-minimal")
result = optimize(scenario)
metrics = result.evaluation.metrics
for pool in result.evaluation.pools:
    deployed = pool.pool
    where = f"{deployed.instances} x {deployed.configuration.role} on {deployed.configuration.chip}"
    print(f"{where}, {deployed.gpus} GPUs, load {pool.utilisation:.0%}")
print(f"{result.status}: {metrics.cost_usd_per_h:.2f} USD/h, TTFT P99 {metrics.ttft_p99_s:.2f} s, BCR {metrics.bcr:.4f} req/s per USD/h")

# %% [markdown]
# The plan is fixed now. What does it serve when the demand changes? The same decision is evaluated under other scenarios.

# %%
good = {}
for rate in (6, 10, 11, 12, 16):
    changed = load_scenario(scenario, {"workload.rate": f"{rate} req/s"})
    answer = evaluate_plan(changed, result.evaluation.decision).evaluation
    good[rate] = answer.metrics.p_good if answer.stable else 0.0
    print(f"{rate:>3} req/s: {good[rate]:6.1%} good" + ("" if answer.stable else " (unstable: the queue grows without end)"))

assert good[6] >= good[10] >= good[16]
assert good[16] < 0.95, "a plan for 10 req/s does not carry 16"

# %% [markdown]
# Planning again at each rate costs more only where another instance is needed.

# %%
costs = []
for rate in (5, 10, 20):
    again = optimize(load_scenario(scenario, {"workload.rate": f"{rate} req/s"}))
    costs.append(again.evaluation.metrics.cost_usd_per_h)
    print(f"{rate:>3} req/s: {again.evaluation.metrics.gpus} GPUs, {costs[-1]:.2f} USD/h")

assert costs == sorted(costs)

# %% [markdown]
# A limit that no plan can meet is an answer too: which constraint, by how much, and what would help.

# %%
try:
    optimize(load_scenario(scenario, {"workload.classes.chat.sla.tpot": "2 ms"}))
except InfeasibleError as error:
    print(error)
else:
    raise AssertionError("a 32 B model on H100 does not decode at 2 ms a token")
