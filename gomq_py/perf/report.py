"""Figures as text for people and as JSON for programs."""


def progress(published_per_s, consumed_per_s):
    """Print the line of each second."""
    print(
        f"Publish rate: {published_per_s:,.0f} msgs/s Consume rate: {consumed_per_s:,.0f} msgs/s", flush=True
    )


def summary(result):
    """Text for the end of a run."""
    lines = [
        "", "Summary:",
        f"Published: {result.published:,} messages, {result.publish_rate:,.0f} msgs/s",
        f"Consumed:  {result.consumed:,} messages, {result.consume_rate:,.0f} msgs/s",
    ]
    for name in ("confirmed", "refused", "returned", "redelivered", "lost", "doubled"):
        if count := getattr(result, name):
            lines.append(f"{name.capitalize()}: {count:,}")
    for latency, noun in ((result.latency, "messages"), (result.confirm_latency, "confirms")):
        if latency and latency["count"]:
            values = ", ".join(
                f"{name} {latency[name]:.3f}" for name in ("min", "median", "p75", "p95", "p99", "max")
            )
            lines.append(f"Latency of {latency['count']:,} {noun} in ms: {values}")
    if result.broker_cpu_us is not None:
        lines.append(f"Broker: {result.broker_cpu_us:.3f} us of CPU time per message")
    if result.broker_memory is not None:
        lines.append(
            f"Broker: {result.broker_memory['rss'] / 1e6:.1f} MB resident, "
            f"{result.broker_memory['anonymous'] / 1e6:.1f} MB of it anonymous"
        )
    if result.generator_cpu_us is not None:
        lines.append(f"Generator: {result.generator_cpu_us:.3f} us of CPU time per message")
    return lines + [f"FAULT: {fault}" for fault in result.faults]


def as_json(result):
    """JSON with lavinmqperf's keys and ours."""
    figures = {
        "elapsed_seconds": round(result.elapsed_s, 3), "avg_pub_rate": round(result.publish_rate),
        "avg_consume_rate": round(result.consume_rate),
        "published": result.published, "consumed": result.consumed, "confirmed": result.confirmed,
        "refused": result.refused,
        "returned": result.returned, "redelivered": result.redelivered, "faults": result.faults,
        "broker_cpu_us_per_message": result.broker_cpu_us, "broker_memory": result.broker_memory,
        "generator_cpu_us_per_message": result.generator_cpu_us,
        "delivered_share_while_publishing": result.delivered_share,
    }
    if result.lost is not None:
        figures.update(lost=result.lost, doubled=result.doubled)
    if result.latency is not None:
        count = result.latency["count"]
        figures.update(latency_count=count, latency_sample_size=count)
        figures.update(
            {f"latency_{name}_ms": value for name, value in result.latency.items() if name != "count"}
        )
    if result.confirm_latency is not None:
        figures.update({
            f"confirm_latency_{name}_ms": value
            for name, value in result.confirm_latency.items() if name != "count"
        })
    return figures
