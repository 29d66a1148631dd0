"""The child process of ChildBroker: runs a broker with Chaos. It reads commands from standard input, one JSON
object per line, and writes answers to standard output.

It is started as ``python -m gomq_py.testing.child DATA_DIR OPTIONS``; OPTIONS is a JSON object of Broker's
keywords. It ends when standard input closes, so that a killed test run leaves no broker behind.
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
    """Run the broker and carry out commands until standard input ends. Returns the exit code."""
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
    """Write the value to the parent, as one line of JSON."""
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
