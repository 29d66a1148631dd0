"""Texts: check octets as an MQTT string or topic name (MQTT 5 §1.5.4, §4.7), without objects. A leaf."""

# Results of scan_text; 0: a text that may be a topic name.
ILL_FORMED, WILDCARD, CONTROL = -1, 1, 2


def scan_text(p, at, end):
    """ILL_FORMED for octets that are no UTF-8 or hold U+0000, else WILDCARD and CONTROL as bits."""
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
