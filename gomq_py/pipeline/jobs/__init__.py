"""The jobs of gomq-py-pipeline. Each module here defines the queries of one job.

``running`` runs them, ``cli`` and ``plan`` configure them.
"""


def all_writers(spark, jobs):
    """Return {query name: DataStreamWriter} of all queries of these jobs (plan.Job), in order."""
    # Imported here: a plan is checked without Spark.
    from gomq_py.pipeline.jobs import bronze, metrics, telemetry
    found: dict = {}
    for job in jobs:
        if job.kind == "telemetry":
            found |= telemetry.writers(
                spark, job.reading, job.schema, job.out, job.checkpoint, f"{job.name}-")
        else:
            module = bronze if job.kind == "bronze" else metrics
            found |= module.writers(spark, job.reading, job.out, job.checkpoint, job.name)
    return found
