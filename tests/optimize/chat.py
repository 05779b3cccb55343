"""Chat in one room, which the search plans in a second; tests change what they ask of it."""

CHAT = """
name: chat
model: {name: Qwen/Qwen3-32B-FP8}
engine: vllm
sites:
  A: {chips: [{chip: h100-sxm, stock: 32, price: 2.00 USD/h}]}
workload:
  rate: 4 req/s
  rows: 300
  classes:
    chat:
      input_tokens: {lognormal: {p50: 2k, p99: 16k, max: 32k}}
      output_tokens: 400
      sla: {ttft: {limit: 2 s, p99: 4 s}, tpot: {limit: 50 ms}, attainment: 95 %}
search: {tp: [1, 2, 4]}
objective: min-cost
"""
SMALLER = CHAT.replace("rate: 4 req/s\n  rows: 300", "rate: 8 req/s\n  rows: 100").replace("[1, 2, 4]", "[1, 2]")
