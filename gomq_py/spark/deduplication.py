"""Deduplication: checks that the target remembers as many ids as a batch has; repeated batches rely on that.
"""
from gomq_py.spark.errors import GomqError, OptionError
from gomq_py.spark.http_transport import HttpTransport

# Default cache size of a target (broker.deduplication).
DEFAULT_SIZE = 128


def check_cache(target):
    """Check that the target of option deduplicationHeader remembers a whole batch. Raises OptionError,
    GomqError.
    """
    options = target.options
    header = options["deduplicationHeader"]
    if header is None:
        return
    if options["maxBatchRows"] is None:
        raise OptionError(
            "option deduplicationHeader needs option maxBatchRows: the most rows that a batch may have, "
            "which the target's x-cache-size has to remember"
        )
    kind, name = (
        ("queues", options["queue"]) if options["queue"] is not None else ("exchanges", options["exchange"])
    )
    arguments = HttpTransport(options, target.credentials).arguments(kind, name)
    if arguments.get("x-message-deduplication") is not True:
        raise GomqError(
            f"'{name}' does not deduplicate: declare it with x-message-deduplication=true, and x-cache-size "
            f"of at least {options['maxBatchRows']}"
        )
    known = arguments.get("x-deduplication-header", "x-deduplication-header")
    if known != header:
        raise OptionError(f"option deduplicationHeader is {header}, and '{name}' looks at {known}")
    size = arguments.get("x-cache-size", DEFAULT_SIZE)
    if size < options["maxBatchRows"]:
        raise OptionError(
            f"'{name}' remembers {size} ids (x-cache-size) and a batch may have {options['maxBatchRows']} "
            "rows (option maxBatchRows): a repeated batch would come twice. "
            "Declare it with a larger cache, or make batches smaller")
