"""Lifecycle: the states of a handshake, a connection and a channel, and the events that change them.

Below handshake, connection and channel. Each keeps a state and passes its events to ``moved``, which returns
False, and changes nothing, if the table lacks the event in that state. States are text, shown in the log, the
management API and errors.

                  TAKEN_LEAVE from the three in the middle: LEFT
    handshake     HEADER --GREETED--> STARTING --LOGGED_IN--> TUNING --TUNED--> OPENING --OPENED--> OPEN

    connection    HANDSHAKE --OPENED--> OPEN --FAILED--> CLOSING
                  OPEN, CLOSING --STOPPED--> CLOSED
                  OPEN, CLOSING, CLOSED --ENDED--> GONE

                  FAILED: connection.close is ours, the client has to agree
                  STOPPED: nothing is read any more
                  ENDED: its greenlet gives everything back

    channel       OPEN --RELEASED--> CLOSING --ENDED--> CLOSED
                  CLOSING --CROSSED--> CLOSING_BOTH --ENDED--> CLOSED
                  CLOSING_BOTH --REOPENED--> CLOSED

                  RELEASED: either side closes it, or its connection ends
                  CROSSED: the client closes it while we do
                  REOPENED: it need not agree, and uses the number anew
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
    """Set the ``state`` of ``one`` after the event. False: the event has no effect in its state."""
    state = table.get((one.state, event))
    if state is None:
        return False
    one.state = state
    return True
