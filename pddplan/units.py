"""Units: the only home of GB, GiB, Gbps and their parsing.

Base units inside: seconds, bytes, FLOP, tokens, requests, USD. GB is 1e9 bytes, GiB 2^30; the case of b and B
decides between bits and bytes. K is 1000, Ki is 1024.
"""

from __future__ import annotations

KB, MB, GB, TB, PB = 1e3, 1e6, 1e9, 1e12, 1e15
KIB, MIB, GIB, TIB = 2.0**10, 2.0**20, 2.0**30, 2.0**40
BITS_PER_BYTE = 8.0
GBPS_BYTES_PER_S = 1e9 / BITS_PER_BYTE
HOURS_PER_YEAR = 8760.0
HOURS_PER_MONTH = HOURS_PER_YEAR / 12.0
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
TERA = 1e12
