"""The child's side: a broker with its switches, controlled over standard input by one JSON object per line,
with answers on standard output.

``python -m gomq_py.testing.child DATA_DIR OPTIONS``; OPTIONS is a JSON object of Broker keywords. Ends when
the parent's end of the pipe closes, so that a killed test run leaves nothing behind.
"""
import json
import sys

from gomq_py.embedded import Broker
from gomq_py.observability import log
from gomq_py.testing.chaos import Chaos

VERBS = (
    "drop_connections", "close_connections", "refuse_logins", "delay_confirms", "nack_confirms", "trip_alarm",
    "calm",
)


def main(arguments):
    """Serve until standard input ends. Returns the exit code."""
    data_dir, options = arguments
    options = json.loads(options)
    log.configure(options.get("log_level", "info"))
    try:
        broker = Broker(data_dir, **options).start()
    except Exception as error:  # the parent raises it in the test
        answer({"error": str(error)})
        return 2
    chaos = broker.call(Chaos)
    answer({"addresses": broker.addresses})
    for line in sys.stdin:
        request = json.loads(line)
        if request["verb"] not in VERBS:
            answer({"error": f"unknown verb {request['verb']}"})
            continue
        try:
            value = broker.call(
                lambda launcher, asked=request: getattr(chaos, asked["verb"])(*asked["arguments"]))
        except Exception as error:
            answer({"error": str(error), "is_value": isinstance(error, (ValueError, TypeError))})
        else:
            answer({"value": value})
    broker.close()
    return 0


def answer(value):
    """Write one line to the parent."""
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
