"""What LavinMQ needed for the same loads, where it was measured: it is not run beside ours.

By the keys of the rows; "" has the title of the column. CPU time of the broker per message and messages a
second, or p50 and p99.
"""
LAVINMQ = {
    "": "LavinMQ, elsewhere",
    "small": "0.99 us, 1.07 M/s", "four": "0.98 us, 1.01 M/s", "kilo": "3.9 us, 265 k/s",
    "confirms": "1.60 us, 94 k/s", "each": "1.96 us, 482 k/s (window 10 000)",
    "stream": "3.6 us", "writes": "0.94 us, 800 k/s", "publish": "0.55 us, 1.8 M/s",
    "consumers-100": "1.0 us, 1.07 M/s", "consumers-1000": "1.4 to 2.6 us, 650 k/s",
    "topic-mixed": "3.8 us, 288 k/s", "dead-letters": "6.4 us", "mebi": "3760 us",
    "body-16": "2.4 ns", "perf-tls-16": "4.3 us, of 104 k/s", "perf-tls-1024": "6.8 us, of 63 k/s",
    "perf-tls-16384": "52 us, of 12 k/s", "steady-5": "1.35 / 41 ms, 11.7 us", "quiet": "3.7 / 18.9 ms",
    "durable-5": "0.10 / 0.41 ms, 41 to 54 us", "durable-5-confirm": "0.43 / 2.9 ms",
    "perf-test": "41 ms (p99 450), of 99 k/s",
    "start": "0.02 s", "idle": "2.5 MB", "resident": "13 MB", "connection": "54.5 KiB",
    "login": "100 to 186 us", "gone": "100 to 300 MB", "waiting": "0 MB",
}
ABOUT = (
    "LavinMQ 2.9.1 was measured in November 2026 on two other processors, with another generator and nearly "
    "the same loads: at 10 000 a second it wrote several messages together. Empty cells were not measured."
)
