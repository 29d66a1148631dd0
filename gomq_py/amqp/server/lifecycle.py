"""Lifecycle: defines the states of a handshake, a connection and a channel, and the events that change them.

Each handshake, connection and channel keeps a state and passes events to ``moved``. An event without an
arrow from that state changes nothing. States are text, shown in the log, the management API and errors.

    handshake     HEADER --GREETED--> STARTING --LOGGED_IN--> TUNING --TUNED--> OPENING --OPENED--> OPEN
                  STARTING, TUNING, OPENING --TAKEN_LEAVE--> LEFT

    connection    HANDSHAKE --OPENED--> OPEN --FAILED--> CLOSING
                  OPEN, CLOSING --STOPPED--> CLOSED
                  OPEN, CLOSING, CLOSED --ENDED--> GONE

                  FAILED: the broker has sent connection.close, and the client has to agree
                  STOPPED: the client is not read any more
                  ENDED: the connection has released everything it held

    channel       OPEN --RELEASED--> CLOSING --ENDED--> CLOSED
                  CLOSING --CROSSED--> CLOSING_BOTH --ENDED--> CLOSED
                  CLOSING_BOTH --REOPENED--> CLOSED

                  RELEASED: either side closes the channel, or its connection ends
                  CROSSED: the client closes the channel after the broker has closed it
                  REOPENED: the client opens the channel number again instead of agreeing
"""
HEADER, STARTING, TUNING, OPENING, LEFT = "header", "starting", "tuning", "opening", "closed"
HANDSHAKE, OPEN, CLOSING, CLOSED, GONE = "handshake", "open", "closing", "closed", "ended"
CLOSING_BOTH = "closing on both sides"

GREETED, LOGGED_IN, TUNED, OPENED, TAKEN_LEAVE = "greeted", "logged in", "tuned", "opened", "taken leave"
FAILED, STOPPED, ENDED = "failed", "stopped", "ended"
RELEASED, CROSSED, REOPENED = "released", "crossed", "reopened"

# (state, event): the state after it.
OF_HANDSHAKE = {
    (HEADER, GREETED): STARTING,
    (STARTING, LOGGED_IN): TUNING,
    (TUNING, TUNED): OPENING,
    (OPENING, OPENED): OPEN,
    (STARTING, TAKEN_LEAVE): LEFT,
    (TUNING, TAKEN_LEAVE): LEFT,
    (OPENING, TAKEN_LEAVE): LEFT,
}
OF_CONNECTION = {
    (HANDSHAKE, OPENED): OPEN,
    (OPEN, FAILED): CLOSING,
    (OPEN, STOPPED): CLOSED,
    (CLOSING, STOPPED): CLOSED,
    (OPEN, ENDED): GONE,
    (CLOSING, ENDED): GONE,
    (CLOSED, ENDED): GONE,
}
OF_CHANNEL = {
    (OPEN, RELEASED): CLOSING,
    (CLOSING, CROSSED): CLOSING_BOTH,
    (CLOSING_BOTH, CROSSED): CLOSING_BOTH,
    (CLOSING_BOTH, REOPENED): CLOSED,
    (CLOSING, ENDED): CLOSED,
    (CLOSING_BOTH, ENDED): CLOSED,
}


def moved(one, table, event):
    """Change ``one.state`` as ``table`` says for ``event``. Returns False if the state ignores this event."""
    state = table.get((one.state, event))
    if state is None:
        return False
    one.state = state
    return True
