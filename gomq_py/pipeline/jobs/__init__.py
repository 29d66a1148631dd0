"""The jobs: each module says what its queries are.

They are run by ``running``, configured by ``cli`` and ``plan``.
"""


def all_writers(spark, jobs):
    """{name: DataStreamWriter} of the jobs (plan.Job) of a pipeline file, in their order."""
    # Here, because a plan is checked before Spark is there.
    from gomq_py.pipeline.jobs import bronze, metrics, telemetry
    found: dict = {}
    for job in jobs:
        if job.kind == "telemetry":
            found |= telemetry.writers(
                spark, job.reading, job.schema, job.out, job.checkpoint, f"{job.name}-"
            )
        else:
            module = bronze if job.kind == "bronze" else metrics
            found |= module.writers(spark, job.reading, job.out, job.checkpoint, job.name)
    return found
