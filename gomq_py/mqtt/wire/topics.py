"""Topics: checks topic names, topic filters and shared subscriptions, matches filters with names, and checks
strings in place (MQTT 5 §1.5.4, §4.7, §4.8.2).

A message is published to a topic name; a subscription has a topic filter. Both consist of levels separated by
``/``; a level may be empty. In a filter ``+`` stands for one level, ``#`` at the end for any number of
levels, including none.
"""
import re

from gomq_py.mqtt.wire.constants import STRING_MAX
from gomq_py.mqtt.wire.errors import shown

SEPARATOR = "/"
SINGLE_LEVEL = "+"
MULTI_LEVEL = "#"
SHARE_PREFIX = "$share/"
# Prefix of topics that only the broker publishes to.
BROKER_PREFIX = "$SYS/"
# Exception: a Mosquitto bridge publishes its connection state there, also as its will.
_BRIDGE_STATE = re.compile(rb"\$SYS/broker/connection/[^/]+/state")

_OF_BROKER = BROKER_PREFIX.encode()
# Maps every ASCII character: a character that is not found costs an exception (6200 instructions a topic
# became 2900).
_SWAP = "".join(map(chr, range(128))).translate(str.maketrans("/.", "./"))
# A receiver may refuse control characters (§1.5.4): in names they do nothing but disturb logs and terminals.
_CONTROL = re.compile("[\x01-\x1f\x7f-\x9f]")
# Results of scan_text; 0: a text that may be a topic name.
ILL_FORMED, WILDCARD, CONTROL = -1, 1, 2


def topic_name_fault(name):
    """Return an error text if ``name`` (UTF-8 without U+0000) is not a valid topic name; otherwise ""."""
    if not name:
        return "a topic name is at least one character long"  # [MQTT-4.7.3-1]
    if SINGLE_LEVEL in name or MULTI_LEVEL in name:
        return f"topic name {shown(name)} contains a wildcard"  # [MQTT-3.3.2-2]
    return text_fault("topic name", name)


def is_topic_name(text):
    """Return whether a text is a valid topic name. ``text`` may be any str, also one with U+0000."""
    if text.isascii() and text.isprintable():  # nearly all are; a search for control characters costs more
        return 0 < len(text) <= STRING_MAX and SINGLE_LEVEL not in text and MULTI_LEVEL not in text
    return not topic_name_fault(text) and "\0" not in text


def topic_filter_fault(topic_filter):
    """Return an error text if ``topic_filter`` is not a valid topic filter; otherwise ""."""
    if not topic_filter:
        return "a topic filter is at least one character long"  # [MQTT-4.7.3-1]
    if MULTI_LEVEL in topic_filter or SINGLE_LEVEL in topic_filter:
        levels = topic_filter.split(SEPARATOR)
        for position, level in enumerate(levels, start=1):
            if MULTI_LEVEL in level and (level != MULTI_LEVEL or position < len(levels)):
                # [MQTT-4.7.1-1]
                return f"topic filter {shown(topic_filter)} has a # that is not its last level"
            if SINGLE_LEVEL in level and level != SINGLE_LEVEL:
                # [MQTT-4.7.1-2]
                return f"topic filter {shown(topic_filter)} has a + beside other characters of a level"
    return text_fault("topic filter", topic_filter)


def text_fault(what, text):
    """Return an error text if ``text`` is longer than 65,535 bytes or has control characters; otherwise "".
    ``what``: the name of ``text`` in the error text.
    """
    if _CONTROL.search(text):
        return f"{what} {shown(text)} contains a control character"
    if len(text) > STRING_MAX // 4 and len(text.encode()) > STRING_MAX:
        return f"a {what} is longer than {STRING_MAX} bytes"  # [MQTT-4.7.3-3]
    return ""


def is_broker_topic(topic):
    """Return whether only the broker may publish to a topic name (bytes), such as most topics below $SYS/."""
    return topic.startswith(_OF_BROKER) and _BRIDGE_STATE.fullmatch(topic) is None


def is_shared(topic_filter):
    """Return whether a topic filter is that of a shared subscription: it begins with $share/."""
    return topic_filter.startswith(SHARE_PREFIX)


def shared_fault(topic_filter):
    """Return an error text if a $share/ filter lacks a valid share name or the filter itself; else ""."""
    share_name, separator, rest = topic_filter.removeprefix(SHARE_PREFIX).partition(SEPARATOR)
    if not share_name:
        return f"topic filter {shown(topic_filter)} has an empty share name"  # [MQTT-4.8.2-1]
    if SINGLE_LEVEL in share_name or MULTI_LEVEL in share_name:
        return f"topic filter {shown(topic_filter)} has a wildcard in its share name"  # [MQTT-4.8.2-2]
    if not separator or not rest:
        return f"topic filter {shown(topic_filter)} has no filter behind its share name"  # [MQTT-4.8.2-2]
    return ""


def split_shared(topic_filter):
    """Return (share name or "", filter) of a valid filter: ("group", "a/+") for ``$share/group/a/+``."""
    if not is_shared(topic_filter):
        return "", topic_filter
    share_name, _, rest = topic_filter.removeprefix(SHARE_PREFIX).partition(SEPARATOR)
    return share_name, rest


def swapped(text):
    """Exchange "/" and "." in a text: a topic becomes its routing key, a routing key its topic."""
    return text.translate(_SWAP)


def binding_key(topic_filter):
    """Convert a topic filter without $share/ to an AMQP topic exchange's binding key: a/+/b to a.*.b."""
    return swapped(topic_filter).replace(SINGLE_LEVEL, "*")


def matches(topic_filter, topic_name):
    """Return whether a topic filter without $share/ matches a topic name. Both are str, or both bytes."""
    if isinstance(topic_filter, bytes):
        # Any decoding will do: only / + # $ matter, and no other character's octets contain them.
        topic_filter, topic_name = topic_filter.decode("latin-1"), topic_name.decode("latin-1")
    pattern, name = topic_filter, topic_name
    pattern_end, name_end = len(pattern), len(name)
    if name_end and pattern_end and name[0] == "$" and (pattern[0] == "+" or pattern[0] == "#"):
        return False  # [MQTT-4.7.2-1]
    # Character by character: lists of levels cost ten times as much, and each session asks for each topic.
    at = place = 0
    while True:
        is_single = False
        if at < pattern_end and (at + 1 == pattern_end or pattern[at + 1] == "/"):
            if pattern[at] == "#":
                return True  # the level above as well: a/# matches a
            is_single = pattern[at] == "+"
        if place > name_end:
            return False  # the topic has no more levels
        if is_single:
            at += 1
            while place < name_end and name[place] != "/":
                place += 1
        else:
            while at < pattern_end and pattern[at] != "/":
                if place == name_end or name[place] != pattern[at]:
                    return False
                at += 1
                place += 1
            if place < name_end and name[place] != "/":
                return False
        # Both positions are now behind their level. A position past the end: no more levels.
        at += 1
        place += 1
        if at > pattern_end:
            return place > name_end


def scan_text(p, at, end):
    """Check the text ``p[at:end]``. Returns ILL_FORMED if it is no well-formed UTF-8 or has U+0000. Otherwise
    returns the bits WILDCARD (+ or #) and CONTROL (control characters), each set if the text has such
    characters.
    """
    found = 0
    while at < end:
        octet = p[at]
        at += 1
        if octet < 0x80:
            if octet == 0x2B or octet == 0x23:
                found |= WILDCARD
            elif octet < 0x20 or octet == 0x7F:
                if octet == 0:
                    return ILL_FORMED
                found |= CONTROL
            continue
        # The second octet's range depends on the first; the others are 80..BF (Unicode, table 3-7).
        low = 0x80
        high = 0xBF
        if octet < 0xC2 or octet > 0xF4:
            return ILL_FORMED
        if octet < 0xE0:
            more = 1
        elif octet < 0xF0:
            more = 2
            if octet == 0xE0:
                low = 0xA0
            elif octet == 0xED:
                high = 0x9F  # surrogates lie above
        else:
            more = 3
            if octet == 0xF0:
                low = 0x90
            elif octet == 0xF4:
                high = 0x8F
        if end - at < more or p[at] < low or p[at] > high:
            return ILL_FORMED
        if octet == 0xC2 and p[at] < 0xA0:
            found |= CONTROL
        at += 1
        while more > 1:
            if p[at] & 0xC0 != 0x80:
                return ILL_FORMED
            at += 1
            more -= 1
    return found
