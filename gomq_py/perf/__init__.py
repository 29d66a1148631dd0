"""gomq-py-perf, the load tool."""
