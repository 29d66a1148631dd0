"""Options: what they may be, and what is said where they are something else."""
import json

import pytest

from gomq_py.spark.errors import OptionError
from gomq_py.spark.options import Options, credentials


def test_the_least_that_is_given_reads_a_stream_over_http():
    options = Options({"subscribe": "orders, payments"})

    assert options["subscribe"] == ("orders", "payments")
    assert (options["transport"], options["url"], options["vhost"]) == ("http", "http://127.0.0.1:15672", "/")
    assert (
        (options["failOnDataLoss"], options["includeHeaders"], options["batchRows"]) == (True, False, 20000)
    )


def test_the_case_of_a_name_does_not_matter():
    assert Options({"SUBSCRIBE": "a", "maxoffsetspertrigger": "5"})["maxOffsetsPerTrigger"] == 5


@pytest.mark.parametrize("given, words", [
    ({}, "give option subscribe"),
    ({"subscribe": "a", "subscribePattern": "b"}, "subscribe and subscribePattern exclude each other"),
    ({"subscribe": "a,,b"}, "option subscribe is a list of names"),
    ({"subscribe": "a,a"}, "names a stream twice"),
    ({"subscribePattern": "("}, "option subscribePattern is a regular expression"),
    ({"subscribe": "a", "startingOffset": "1"}, "did you mean startingOffsets?"),
    ({"subscribe": "a", "bananas": "1"}, "option bananas is unknown; there are"),
    (
        {"subscribe": "a", "startingOffsets": "soon"},
        "option startingOffsets is earliest, latest, an offset, or JSON",
    ),
    ({"subscribe": "a", "startingOffsets": '{"a": -1}'}, "option startingOffsets is"),
    ({"subscribe": "a", "startingOffsets": '{"a": true}'}, "option startingOffsets is"),
    (
        {"subscribe": "a", "startingOffsets": '{"b": 1}'},
        "speaks of stream 'b', which option subscribe does not name",
    ),
    ({"subscribe": "a", "startingOffsets": "1", "startingTimestamp": "1"}, "exclude each other"),
    (
        {"subscribe": "a", "startingTimestamp": "1", "startingOffsetsByTimestamp": '{"a": 1}'},
        "startingTimestamp and startingOffsetsByTimestamp exclude each other",
    ),
    ({"subscribe": "a", "startingOffsetsByTimestamp": "17"}, "startingOffsetsByTimestamp is JSON of times"),
    ({"subscribe": "a", "endingOffsetsByTimestamp": '{"a": "latest"}'}, "is JSON of times in milliseconds"),
    ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"1": 5}}'}, "is JSON of times in milliseconds"),
    ({"assign": '["a"]', "startingOffsetsByTimestamp": '{"b": 1}'}, "'b', which option assign does not name"),
    ({"assign": '["a"]', "subscribe": "a"}, "subscribe and assign exclude each other"),
    *(({"assign": text}, "assign is JSON of different streams") for text in (
        "a", "[]", "{}", "[1]", '["a", "a"]', '[""]', '{"a": [1]}', '{"a": [0, 1]}', '[["a"]]', "[" * 9999)),
    (
        {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
        "minOffsetsPerTrigger is 9 and maxOffsetsPerTrigger 8",
    ),
    ({"subscribe": "a", "maxTriggerDelay": "1s"}, "maxTriggerDelay goes with option minOffsetsPerTrigger"),
    (
        {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"},
        "maxTriggerDelay is a duration such as 500ms",
    ),
    ({"subscribe": "a", "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition is a whole number from 1 on"),
    ({"subscribe": "a", "endingOffsets": "earliest"}, "endingOffsets is latest"),
    (
        {"subscribe": "a", "startingTimestamp": "yesterday"},
        "option startingTimestamp is a time in milliseconds since 1970",
    ),
    (
        {"subscribe": "a", "maxOffsetsPerTrigger": "0"},
        "option maxOffsetsPerTrigger is a whole number from 1 on",
    ),
    ({"subscribe": "a", "maxOffsetsPerTrigger": "9" * 5000}, "maxOffsetsPerTrigger is a whole number"),
    ({"subscribe": "a", "maxBytesPerTrigger": "9" * 5000}, "maxBytesPerTrigger is a number of bytes"),
    ({"subscribe": "a", "startingOffsets": "9" * 5000}, "option startingOffsets is earliest, latest"),
    ({"subscribe": "a", "startingTimestamp": "9" * 5000}, "startingTimestamp is a time in milliseconds"),
    ({"subscribe": "a", "startingOffsets": "[" * 9999}, "option startingOffsets is earliest, latest"),
    ({"subscribe": "a", "minPartitions": "100001"}, "minPartitions is a whole number from 1 to 100000"),
    ({"subscribe": "a", "batchRows": "1000001"}, "batchRows is a whole number from 1 to 1000000"),
    ({"subscribe": "a", "batchBytes": "2g"}, "batchBytes is at most 1073741824 bytes"),
    ({"subscribe": "a", "maxBytesPerTrigger": "8x"}, "option maxBytesPerTrigger is a number of bytes"),
    ({"subscribe": "a", "failOnDataLoss": "maybe"}, "option failOnDataLoss is true or false, not 'maybe'"),
    ({"subscribe": "a", "pushFilters": "all"}, "option pushFilters is false, true"),
    ({"subscribe": "a", "transport": "pigeon"}, "option transport is one of http, files, amqp"),
    ({"subscribe": "a", "transport": "files"}, "option dataDir is missing"),
    ({"subscribe": "a", "amqpUrl": "amqp://h"}, "option amqpUrl is for writing and for transport=amqp"),
    ({"subscribe": "a", "transport": "amqp", "amqpUrl": "h:1"}, "option amqpUrl is such as amqp://"),
    (
        {"subscribe": "a", "transport": "amqp", "startingTimestamp": "1"},
        "option startingTimestamp needs transport=http or files",
    ),
    ({"subscribePattern": "a", "transport": "amqp"}, "option subscribePattern needs transport=http"),
    ({"subscribe": "a", "dataDir": "/tmp"}, "option dataDir is for transport=files"),
    ({"subscribe": "a", "url": "localhost:15672"}, "option url is the address of the management API"),
    ({"subscribe": "a", "url": "http://host:port"}, "option url is the address of the management API"),
    ({"subscribe": "a", "queue": "b"}, "option queue is for writing and option subscribe for reading"),
    ({"exchange": "a", "queue": "b"}, "exclude each other"),
    ({"queue": "b", "routingKey": "c"}, "option routingKey goes with option exchange"),
    ({"routingKey": "c"}, "give option queue, or exchange"),
    ({"queueColumn": "a", "routingKey": "c"}, "option routingKey goes with option exchange"),
    ({"queueColumn": "a", "queue": "b"}, "queue and queueColumn exclude each other"),
    (
        {"queueColumn": "a", "deduplicationHeader": "x"},
        "deduplicationHeader goes with option queue or exchange",
    ),
])
def test_what_makes_no_sense_is_told_with_the_option_and_what_it_may_be(given, words):
    with pytest.raises(OptionError) as refused:
        Options(given)

    assert words in str(refused.value) and len(str(refused.value)) < 1500


@pytest.mark.parametrize("given", [
    {"subscribe": "a", "password": "hush"}, {"subscribe": "a", "url": "http://guest:hush@host:1"},
    {"queue": "a", "amqpUrl": "amqp://guest:hush@host:1"},
    {"subscribe": "a", "transport": "amqp", "amqpUrl": "amqp://guest:hush@host:1"},
    {"subscribe": "a", "user": "hush"},
])
def test_no_option_takes_a_password_and_no_text_shows_one(given):
    with pytest.raises(OptionError) as refused:
        Options(given)

    assert "GOMQ_PASSWORD" in str(refused.value) and "credentialsFile" in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("text, names", [
    ('["a,b", "c"]', ("a,b", "c")), ('{"orders": [0], "payments": [0]}', ("orders", "payments"))])
def test_streams_are_assigned_by_names_or_as_partitions_of_kafka(text, names):
    assert Options({"assign": text}).streams == names


def test_times_of_streams_are_milliseconds_or_as_kafka_has_them():
    options = Options({"subscribe": "a,b", "startingOffsetsByTimestamp": '{"a": 1500, "b": {"0": 2500}}'})

    assert options["startingOffsetsByTimestamp"] == {"a": 1500, "b": 2500}


@pytest.mark.parametrize("text, ms", [
    ("15m", 900_000), ("30 s", 30_000), ("500ms", 500), ("250", 250), ("2H", 7_200_000)])
def test_a_delay_may_have_a_unit(text, ms):
    options = Options({"subscribe": "a", "minOffsetsPerTrigger": "5", "maxTriggerDelay": text})

    assert options["maxTriggerDelay"] == ms
    assert Options({"subscribe": "a", "minOffsetsPerTrigger": "5"})["maxTriggerDelay"] == 900_000


@pytest.mark.parametrize("text, octets", [("1", 1), ("64k", 65536), ("8 MB", 8 << 20), ("1g", 1 << 30)])
def test_octets_may_have_a_unit(text, octets):
    assert Options({"subscribe": "a", "batchBytes": text})["batchBytes"] == octets


def test_credentials_come_from_the_environment_or_a_file(tmp_path):
    path = tmp_path / "spark.json"
    path.write_text(json.dumps({"user": "spark", "password": "hush"}))

    by_file = credentials(Options({"subscribe": "a", "credentialsFile": str(path)}), {"GOMQ_USER": "other"})
    by_environment = credentials(Options({"subscribe": "a"}), {"GOMQ_USER": "spark", "GOMQ_PASSWORD": "hush"})

    assert (by_file.user, by_file.password) == ("spark", "hush") == (
        by_environment.user, by_environment.password
    )
    assert credentials(Options({"subscribe": "a"}), {}).user == "guest"
    assert "hush" not in repr(by_file)


@pytest.mark.parametrize("content", [None, "no json", "[]", "{}", '{"user": 1}'])
def test_a_credentials_file_that_cannot_be_used_is_named(tmp_path, content):
    path = tmp_path / "spark.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(OptionError, match="spark.json cannot be used"):
        credentials(Options({"subscribe": "a", "credentialsFile": str(path)}))
