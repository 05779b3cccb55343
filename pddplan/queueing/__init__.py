"""Queueing theory on plain numbers: it knows nothing of language models.

erlang (blocking, waiting), mg1 (one server), ggc (pools and dispatch), processor_sharing (the line), decode (the batch
server), grid (laws of times and their sums), arrivals (streams of customers for the compiled recursions).
"""
