"""Stream filters: values, conditions on headers, geography; good, bad and boundary arguments."""
from decimal import Decimal

import pytest

from gomq_py.broker.queues.stream_reader import parse_filter
from gomq_py.broker.features.stream_geo import distance_km
from gomq_py.content.properties import Properties
from gomq_py.storage.message import Message


def wants(arguments, headers=None, **properties):
    message = Message()
    message.assign(b"x", b"k", Properties(headers=headers, **properties).encode(), b"body", 0)
    return bool(parse_filter(arguments).matches(message))


def value(text):
    return {"x-stream-filter-value": text}


@pytest.mark.parametrize("wanted, there, matches", [
    ("eu", "eu", True), ("eu", "us", False), ("eu", "eu2", False), ("eu", "", False),
    (["eu", "us"], "us", True), ("eu,us", "us", True),
    ("eu, us", "us", True), ("eu", "us,eu", True), ("eu", "us, eu ", True), ("eu,us", "jp,us", True),
    ("eu,us", "jp,cn", False), ("", "", True),
    ("\u00fc", "\u00fc", True), ("e" * 300, "e" * 300, True),
])
def test_one_value_is_enough(wanted, there, matches):
    assert wants({"x-stream-filter": wanted}, value(there)) is matches


@pytest.mark.parametrize("there, matches", [("eu", False), ("eu,us", True), ("us,jp,eu", True)])
def test_all_values_where_asked_for(there, matches):
    assert wants({"x-stream-filter": ["eu", "us"], "x-filter-match-type": "all"}, value(there)) is matches


@pytest.mark.parametrize("headers", [
    None, {}, {"other": "eu"}, {"x-stream-filter-value": 5}, {"x-stream-filter-value": None}
])
@pytest.mark.parametrize("unfiltered", [True, False])
def test_messages_without_a_value_are_wanted_where_asked_for(headers, unfiltered):
    assert wants({"x-stream-filter": "eu", "x-stream-match-unfiltered": unfiltered}, headers) is unfiltered


def test_value_is_found_among_other_headers_and_properties():
    headers = {
        "a": [1, {"b": "x" * 1000}], "x-stream-filter-valu": "us", "x-stream-filter-value": "eu", "z": 1
    }
    assert wants(
        {"x-stream-filter": "eu"}, headers, content_type="text/plain", content_encoding="gzip", message_id="m"
    )


@pytest.mark.parametrize("condition, headers, matches", [
    ({"n": 7}, {"n": 7}, True), ({"n": "7"}, {"n": 7}, True), ({"n": 7}, {"n": 7.0}, True),
    ({"n": 7}, {"n": 8}, False), ({"n": 7}, {}, False),
    ({"n": True}, {"n": True}, True), ({"n": "true"}, {"n": True}, True), ({"n": True}, {"n": 1}, False),
    ({"n": "a", "m": "b"}, {"n": "a"}, False),
    ({"n": "a", "m": "b"}, {"n": "a", "m": "b"}, True), ({"n": "a"}, {"n": {"a": 1}}, False),
    ({"n": Decimal("1.5")}, {"n": 1.5}, True),
])
def test_conditions_on_headers(condition, headers, matches):
    assert wants({"x-stream-filter": condition}, headers) is matches


@pytest.mark.parametrize("spelled", ["all", "ALL", "All"])
def test_match_type_is_written_in_any_case(spelled):
    arguments = {"x-stream-filter": ["eu", "us"], "x-filter-match-type": spelled}

    assert not wants(arguments, value("eu")) and wants(arguments, value("eu,us"))


@pytest.mark.parametrize("match_type, headers, matches", [
    (None, {"x-stream-filter-value": "eu", "n": 1}, True),
    (None, {"x-stream-filter-value": "eu", "n": 2}, False), (None, {"n": 1}, False),
    ("any", {"x-stream-filter-value": "eu", "n": 2}, True), ("any", {"n": 1}, True), ("any", {"m": 3}, True),
    ("any", {"n": 2, "m": 2}, False),
    ("all", {"x-stream-filter-value": "eu", "n": 1}, True), ("all", {"x-stream-filter-value": "eu"}, False),
])
def test_values_and_conditions_together(match_type, headers, matches):
    given = ["eu", {"n": 1}] if match_type != "any" else ["eu", {"n": 1, "m": 3}]
    arguments = (
        {"x-stream-filter": given} | ({} if match_type is None else {"x-filter-match-type": match_type})
    )

    assert wants(arguments, headers) is matches


HERE = {"lat": 59.33, "lon": 18.06}  # Stockholm


@pytest.mark.parametrize("condition, lat, lon, matches", [
    ({"geo-within-radius": {**HERE, "radius_km": 70}}, 59.86, 17.64, True),
    ({"geo-within-radius": {**HERE, "radius_km": 60}}, 59.86, 17.64, False),
    ({"geo-within-radius": {**HERE, "radius_km": 0}}, 59.33, 18.06, True),
    ({"geo-within-radius": {**HERE, "radius_km": 0}}, "59.33", "18.06", True),
    ({"geo-bbox": {"min_lat": 0, "max_lat": 10, "min_lon": -5, "max_lon": 5}}, 10, -5, True),
    ({"geo-bbox": {"min_lat": 0, "max_lat": 10, "min_lon": -5, "max_lon": 5}}, 10.01, 0, False),
    ({"geo-bbox": {"min_lat": 0, "max_lat": 10, "min_lon": 170, "max_lon": -170}}, 5, -175, True),
    ({"geo-bbox": {"min_lat": 0, "max_lat": 10, "min_lon": 170, "max_lon": -170}}, 5, 0, False),
    ({"geo-polygon": {"points": [[0, 0], [0, 10], [10, 0]]}}, 2, 2, True),
    ({"geo-polygon": {"points": [[0, 0], [0, 10], [10, 0]]}}, 6, 6, False),
    # the notch of a concave one
    ({"geo-polygon": {"points": [[0, 0], [0, 10], [5, 5], [10, 10], [10, 0]]}}, 5, 8, False),
])
def test_geography(condition, lat, lon, matches):
    assert wants({"x-stream-filter": condition}, {"x-geo-lat": lat, "x-geo-lon": lon}) is matches


@pytest.mark.parametrize("headers", [
    None, {"x-geo-lat": 1}, {"x-geo-lat": "north", "x-geo-lon": 1}, {"x-geo-lat": 91, "x-geo-lon": 1},
    {"x-geo-lat": float("nan"), "x-geo-lon": 1}, {"x-geo-lat": [1], "x-geo-lon": 1},
])
def test_message_without_a_position_is_nowhere(headers):
    assert not wants(
        {"x-stream-filter": {"geo-bbox": {"min_lat": -90, "max_lat": 90, "min_lon": -180, "max_lon": 180}}},
        headers,
    )


def test_distance_is_along_the_surface():
    assert distance_km(0, 0, 0, 180) == pytest.approx(20015.09, abs=0.01)
    assert distance_km(59.33, 18.06, 57.71, 11.97) == pytest.approx(397, abs=3)  # Stockholm to Gothenburg


@pytest.mark.parametrize("arguments, reason", [
    ({"x-stream-filter": 5}, "must be a text"), ({"x-stream-filter": [5]}, "must be a text"),
    ({"x-stream-filter": None}, "must be a text"),
    ({"x-stream-filter": []}, "is empty"), ({"x-stream-filter": {}}, "is empty"),
    ({"x-stream-filter": {"n": [1]}}, "header 'n' must be"),
    ({"x-stream-filter": "a", "x-filter-match-type": "some"}, "must be 'all' or 'any'"),
    ({"x-filter-match-type": 1}, "must be 'all' or 'any'"),
    ({"x-stream-filter": "a", "x-stream-match-unfiltered": "true"}, "must be a boolean"),
    ({"x-stream-filter": {"geo-within-radius": 5}}, "lat is missing"),
    ({"x-stream-filter": {"geo-within-radius": HERE}}, "radius_km is missing"),
    ({"x-stream-filter": {"geo-within-radius": {**HERE, "radius_km": "9"}}}, "must be a number"),
    ({"x-stream-filter": {"geo-within-radius": {**HERE, "radius_km": -1}}}, "must not be negative"),
    ({"x-stream-filter": {"geo-within-radius": {**HERE, "radius_km": float("inf")}}}, "must be a number"),
    ({"x-stream-filter": {"geo-within-radius": {"lat": 91, "lon": 0, "radius_km": 1}}}, "is nowhere"),
    (
        {"x-stream-filter": {"geo-bbox": {"min_lat": 5, "max_lat": 4, "min_lon": 0, "max_lon": 1}}},
        "is above max_lat",
    ),
    ({"x-stream-filter": {"geo-bbox": {"min_lat": 5}}}, "max_lat is missing"),
    ({"x-stream-filter": {"geo-polygon": {"points": [[0, 0], [1, 1]]}}}, "three or more"),
    ({"x-stream-filter": {"geo-polygon": []}}, "three or more"),
    ({"x-stream-filter": {"geo-polygon": {"points": [[0, 0], [1, 1], [2]]}}}, "a latitude and a longitude"),
    ({"x-stream-filter": {"geo-polygon": {"points": [[0, 0], [1, 1], [2, True]]}}}, "must be a number"),
])
def test_refused(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        parse_filter(arguments)


def test_no_filter():
    assert parse_filter({}) is None
    assert parse_filter({"x-stream-match-unfiltered": True}) is None
