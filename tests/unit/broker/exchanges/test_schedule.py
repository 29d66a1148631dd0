"""The header x-schedule: which times it means, over the changes of clocks too, and what is refused."""
import time
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from gomq_py.broker.exchanges import schedule
from gomq_py.broker.exchanges.schedule import Schedule, read
from gomq_py.content.fields import Int64, Seconds
from gomq_py.errors import PreconditionFailed

BERLIN = ZoneInfo("Europe/Berlin")
NOW_MS = 1_700_000_000_000  # 2023-11-14 22:13:20 in UTC
DAY_MS = 24 * 3600 * 1000


def ms(*date, zone=timezone.utc, fold=0):
    return int(datetime(*date, tzinfo=zone, fold=fold).timestamp() * 1000)


def made(**fields):
    return Schedule({"name": "n", **fields})


def times(count, now_ms, **fields):
    """The first times of a schedule that is set now, each sent at once."""
    found = [made(**fields).first_ms(now_ms)]
    while len(found) < count and found[-1]:
        found.append(made(**fields, time=found[-1]).next_ms(found[-1]))
    return found


def test_interval_begins_now_or_at_its_start():
    assert times(3, NOW_MS, every=5000) == [NOW_MS + 5000, NOW_MS + 10_000, NOW_MS + 15_000]
    assert times(2, NOW_MS, every=5000, start=NOW_MS + 7) == [NOW_MS + 7, NOW_MS + 5007]
    assert times(2, NOW_MS, every=5000, start=NOW_MS - 12_000) == [NOW_MS + 3000, NOW_MS + 8000]
    at = datetime(2030, 1, 1, tzinfo=timezone.utc)
    assert made(every=5000, start=at).first_ms(NOW_MS) == at.timestamp() * 1000


def test_no_time_is_after_the_end():
    assert times(9, NOW_MS, every=5000, end=NOW_MS + 10_000) == [NOW_MS + 5000, NOW_MS + 10_000, 0]
    assert times(9, NOW_MS, cron="0 0 * * *", end=ms(2023, 11, 16)) == [ms(2023, 11, 15), ms(2023, 11, 16), 0]


def test_cron_line_begins_at_its_start():
    noon = ms(2030, 6, 1, 12)

    assert made(cron="0 12 * * *", start=noon).first_ms(NOW_MS) == noon
    assert made(cron="0 12 * * *", start=noon + 1).first_ms(NOW_MS) == noon + DAY_MS


def test_cron_line_has_seconds_in_front_or_not():
    assert times(2, NOW_MS + 1, cron="* * * * * *") == [NOW_MS + 1000, NOW_MS + 2000]
    assert times(2, NOW_MS, cron="* * * * *") == [NOW_MS + 40_000, NOW_MS + 100_000]
    assert times(1, NOW_MS, cron="0 6 * * mon-fri") == [ms(2023, 11, 15, 6)]


@pytest.mark.parametrize("days, fields", [
    (0.01, {"every": 1000}), (0.03, {"every": 1000}), (0.01, {"cron": "* * * * * *"}),
    (0.03, {"cron": "* * * * * *"}), (9, {"cron": "*/7 */3 * * *"}), (400, {"cron": "30 2 * * *"}),
    (200, {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}),
    (150, {"cron": "59 */4 * * *", "timezone": "America/New_York"})])
@pytest.mark.parametrize("has_end", [False, True])
def test_late_times_are_the_last_ones_of_all_that_were_missed(monkeypatch, days, fields, has_end):
    monkeypatch.setattr(schedule, "MOST_MISSED", 300)
    start_ms = NOW_MS // 1000 * 1000
    now_ms = start_ms + int(days * DAY_MS)
    if has_end:
        fields = {**fields, "end": start_ms + int(days * DAY_MS / 2)}
    missed = [made(**fields, time=start_ms).next_ms(0)]
    while 0 < missed[-1] <= now_ms:
        missed.append(made(**fields, time=missed[-1]).next_ms(0))

    assert made(**fields, time=start_ms).late_ms(now_ms) == missed[:-1][-300:][0]


def test_hour_that_a_zone_leaves_out_comes_right_after_it():
    """Berlin, 31 March 2024: 02:00 to 03:00 is not there."""
    found = times(3, ms(2024, 3, 30, zone=BERLIN), cron="30 2 * * *", timezone="Europe/Berlin")

    assert found == [
        ms(2024, 3, 30, 2, 30, zone=BERLIN), ms(2024, 3, 31, 3, 0, zone=BERLIN),
        ms(2024, 4, 1, 2, 30, zone=BERLIN)]


def test_hour_that_comes_twice_has_a_time_once():
    """Berlin, 27 October 2024: 02:00 to 03:00 is there twice."""
    line = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    twice = ms(2024, 10, 27, 2, 30, zone=BERLIN), ms(2024, 10, 27, 2, 15, zone=BERLIN, fold=1)

    found = times(3, ms(2024, 10, 26, zone=BERLIN), **line)

    assert found == [ms(2024, 10, 26, 2, 30, zone=BERLIN), twice[0], ms(2024, 10, 28, 2, 30, zone=BERLIN)]
    # the broker was away until the second of the hours
    assert twice[0] < twice[1] and made(**line, time=twice[0]).next_ms(twice[1]) == found[2]
    assert made(**line).first_ms(twice[1]) == found[2]


def test_each_minute_of_an_hour_that_comes_twice_counts():
    found = times(121, ms(2024, 10, 27, 1, 59, zone=BERLIN), cron="* * * * *", timezone="Europe/Berlin")

    assert [later - earlier for earlier, later in zip(found, found[1:])] == [60_000] * 120


def test_times_that_are_past_are_left_out_or_come_one_by_one():
    daily = made(cron="0 0 * * *", time=ms(2023, 11, 10))
    assert daily.next_ms(NOW_MS) == ms(2023, 11, 15) and daily.next_ms(0) == ms(2023, 11, 11)
    often = made(every=5000, time=NOW_MS - 12_000)
    assert often.next_ms(NOW_MS) == NOW_MS + 3000 and often.next_ms(0) == NOW_MS - 7000


def test_jitter_is_behind_the_time():
    late = {made(every=5000, jitter=3).due_ms(NOW_MS) - NOW_MS for _ in range(500)}

    assert late == {0, 1, 2, 3} and made(every=5000).due_ms(NOW_MS) == NOW_MS


def check(is_empty=False, headers=(), **fields):
    return read({"x-schedule": fields, **dict(headers)}, is_empty, NOW_MS)


@pytest.mark.parametrize("fields, fault", [
    ({"every": 5000}, "'name'"), ({"name": "", "every": 5000}, "'name'"),
    ({"name": "é" * 128, "every": 5000}, "'name'"),
    ({"name": b"\xff", "every": 5000}, "'name'"), ({"name": "\ud800", "every": 5000}, "'name'"),
    ({"name": 5, "every": 5000}, "'name'"), ({"name": "n"}, "'cron' or 'every'"),
    ({"name": "n", "every": 5000, "cron": "* * * * *"}, "'cron' or 'every'"),
    *(({"name": "n", "every": value}, "'every'") for value in (
        999, 0, -1, 2 ** 63 - 1, 2 ** 64, True, "5000", 5000.0, None, [], {}, Seconds(5000),
        10 * 365 * DAY_MS + 1)),
    *(({"name": "n", "every": 5000, "jitter": value}, "'jitter'") for value in (-1, 5001, "5", True, None)),
    ({"name": "n", "cron": "* * * * *", "jitter": DAY_MS + 1}, "'jitter'"),
    *(({"name": "n", "every": 5000, field: value}, f"'{field}'")
      for field in ("start", "end") for value in (0, -1, "2030-01-01", None, True, 2.0, 2 ** 63, [])),
    ({"name": "n", "every": 5000, "start": Seconds(2 ** 64 - 1)}, "'start'"),
    ({"name": "n", "every": 5000, "start": NOW_MS + 11 * 365 * DAY_MS}, "'start'"),
    ({"name": "n", "every": 5000, "end": NOW_MS}, "'end' leaves no time"),
    ({"name": "n", "cron": "* * * * *", "end": 1}, "'cron' leaves no time"),
    *(({"name": "n", "every": 5000, "missed": value}, "'missed'") for value in ("twice", [], None, b"once")),
    *(({"name": "n", "cron": line}, "'cron'") for line in (
        "", "x", "* * * *", "* * * * * * *", "60 * * * *", "*/0 * * * *", "5-1 * * * *", "0 0 30 2 *", 5,
        "@daily",
        "0 0 */31 2 MON#5", "* " * 2500, "1," * 2500 + "1 * * * *", "9" * 240 + " * * * *", "* * * * MON#1/2",
        "* * L/2,L * L", "* * * * ²L", "* * * * *\0", b"\xff * * * *")),
    *(({"name": "n", "cron": "* * * * *", "timezone": zone}, "'timezone'") for zone in (
        "", "Berlin", "Europe", "/etc/passwd", "../zone", "x" * 5000, "x\0", 5, "Europe/Berlin/")),
    ({"name": "n", "every": 5000, "timezone": "UTC"}, "'timezone' needs 'cron'"),
    *(({"name": "n", "every": 5000, field: 5}, "is unknown")
      for field in ("until", "user", "time", "\udcff" * 99)),
])
def test_bad_field_is_named(fields, fault):
    with pytest.raises(PreconditionFailed, match=f"(?s)invalid header 'x-schedule': .*{fault}") as raised:
        check(**fields)

    assert len(raised.value.text.encode()) < 255


@pytest.mark.parametrize("value", ["n", 5, None, [], [{"name": "n"}]])
def test_header_is_a_table(value):
    with pytest.raises(PreconditionFailed, match="must be a table"):
        read({"x-schedule": value}, False, NOW_MS)


@pytest.mark.parametrize("header", ["x-delay", "x-deliver-at"])
def test_delay_and_schedule_exclude_each_other(header):
    with pytest.raises(PreconditionFailed, match=header):
        check(name="n", every=5000, headers={header: 5})


def test_what_is_sound_is_taken():
    whole = {
        "name": "é" * 127, "cron": "*/5 8-18 * * mon-fri", "timezone": "Europe/Berlin",
        "jitter": Int64(DAY_MS), "start": datetime(2024, 1, 1, tzinfo=timezone.utc),
        "end": Seconds(2 ** 64 - 1), "missed": "none"}

    assert check(**whole).table == whole
    assert check(name="n", every=1000, end=NOW_MS + 1000, start=NOW_MS).name == "n"
    assert check(name="n", every=10 * 365 * DAY_MS).first_ms(NOW_MS)
    assert check(is_empty=True, name="n", every="nonsense").name == "n"


def test_line_that_never_comes_is_found_out_soon():
    """The slowest that were found take 3 ms."""
    began = time.process_time()
    for line in ("0 0 */31 2 MON#5", "0 0 29 2 */7", "59 59 23 L 4 MON#1", "0 0 */31 2 SUN#5"):
        schedule._cron(line, NOW_MS, BERLIN)
        made(cron=line, timezone="Europe/Berlin").first_ms(NOW_MS)

    assert time.process_time() - began < 1


def test_year_without_an_end_is_no_time():
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc) - timedelta(seconds=5)

    assert made(cron="0 0 1 1 *").first_ms(int(last.timestamp() * 1000)) == 0
