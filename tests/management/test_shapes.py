"""Field by field: what a live RabbitMQ 3.10 with a busy queue answered (rabbitmq_api_shapes.json) against
what a busy broker of ours answers.

MISSING lists what is left out, and docs/compatibility.md says why.
"""
import json
import re
from pathlib import Path

import pytest
import requests

from tests.management.busy import VHOST
from tests.support.waiting import in_time

SHAPES = (
    json.loads((Path(__file__).parent / "rabbitmq_api_shapes.json").read_text(encoding="utf-8"))["endpoints"]
)
GETS = sorted(key for key, answer in SHAPES.items() if key.startswith("GET ") and answer["status"] == 200)
TYPES = {
    str: "string", bool: "boolean", int: "number", float: "number", dict: "object", list: "array",
    type(None): "null",
}

# Fields of a client or of an operator, whose names are data.
DATA = re.compile(
    r"\.(arguments|client_properties|definition|effective_policy_definition|value|cluster_state|headers|priority_lengths)\.|"
    r"global_parameters\[\]\.value|^\[\]\.value\b")
# (endpoints, fields, why): patterns. The page of compatibility argues each.
MISSING = (
    (".*", r".*\.backing_queue_status\b.*", "the inside of RabbitMQ's store"),
    (".*", r".*\.(disk_reads|disk_writes)(_details)?\b.*", "messages are read from mapped files"),
    ("GET /(channels|vhosts/V/channels|connections/CONN/channels).*",
     r".*\.message_stats\.(deliver|deliver_no_ack|get|get_no_ack|get_empty)(_details)?\b.*",
     "channels count publishes, confirms and deliveries"),
    ("GET /(channels|vhosts/V/channels|connections/CONN/channels).*", r".*\.idle_since$", "activity is not timed"),
    ("GET /queues.*", r".*\.idle_since$", "activity is not timed"),
    ("GET /nodes.*", r".*\.(io_|mnesia_|msg_store_|queue_index_|context_switches|gc_bytes_reclaimed|gc_num_details|metrics_gc_queue_length|"
     r"ra_open_file_metrics|connection_|channel_|queue_).*", "the inside of RabbitMQ's store and of Erlang"),
    ("GET /nodes.*", r".*\.(cluster_links|config_files|enabled_plugins|partitions|exchange_types|auth_mechanisms|applications|contexts|log_files)"
     r"\[\].*", "what there is differs"),
    ("GET /definitions/V", r"\.(parameters|policies)\[\]\.vhost", "so that they can be imported into another vhost, as RabbitMQ 4 does"),
    ("GET /overview", r".*\.socket_opts\..*", "the options of a socket are not Erlang's"),
    ("GET /nodes/NODE/memory", r"\.memory\..*", "memory is not told apart by Erlang's processes and tables"),
    ("GET /(extensions|feature-flags)", r"\[\].*", "there are none"),
)


def shape_of(value, path=".", found=None):
    """{field path: set of JSON types}, as the file has it: ``.a.b``, ``[]`` for the elements of lists."""
    found = {} if found is None else found
    found.setdefault(path, set()).add(TYPES[type(value)])
    stem = "" if path == "." else path
    if isinstance(value, dict):
        for key, inner in value.items():
            shape_of(inner, f"{stem}.{key}", found)
    elif isinstance(value, list):
        for inner in value:
            shape_of(inner, f"{stem}[]", found)
    return found


def url_of(key, busy):
    """Where this broker has what the endpoint names."""
    path = key.removeprefix("GET ").removesuffix(" (again)")
    path = path.replace("/CONN%20%281%29", f"/{busy.names['channel']}").replace(
        "/CONN", f"/{busy.names['connection']}"
    )
    path = path.replace("/NODE", f"/{busy.names['node']}").replace("/APORT", f"/{busy.names['port']}")
    return f"{busy.api.base}/api{re.sub(r'/V(?=/|$|[?])', f'/{VHOST}', path)}"


def is_argued(key, field):
    return any(
        re.fullmatch(endpoints, key) and re.fullmatch(fields, field) for endpoints, fields, _ in MISSING
    )


@pytest.mark.parametrize("key", GETS)
def test_fields_are_those_of_rabbitmq(busy, key):
    answer = requests.get(url_of(key, busy), auth=("guest", "guest"), timeout=in_time(60))
    ours = shape_of(answer.json())

    theirs = {field: set(types) for field, types in SHAPES[key]["shape"].items() if not DATA.search(field)}
    missing = [field for field in theirs if field not in ours and not is_argued(key, field)]
    # null stands for "not now" on both sides.
    unlike = {
        field: (types, ours[field])
        for field, types in theirs.items()
        if field in ours and not types & ours[field] and "null" not in types | ours[field]
    }

    assert answer.status_code == 200
    assert missing == []
    assert unlike == {}
