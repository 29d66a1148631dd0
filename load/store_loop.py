"""The loops that ``store_speed`` times: what a fast lane does to a store, and nothing else.

Typed in the ``.pxd``; compiled on the fly.
"""


def append(store, message, count):
    """Append the same message ``count`` times."""
    for _ in range(count):
        store.append(message)
    return store.write_out()


def pass_through(store, message, shown, count, batch):
    """``count`` messages in and out in batches: append all of a batch, then peek, shift and delete each,
    as auto-ack deliveries do.
    """
    done = 0
    while done < count:
        for _ in range(batch):
            store.append(message)
        for _ in range(batch):
            store.peek(shown)
            store.shift()
            store.delete(shown.location)
        store.write_out()
        done += batch
    return done


def take(store, shown, count):
    """Take and delete ``count`` messages."""
    for _ in range(count):
        store.peek(shown)
        store.shift()
        store.delete(shown.location)
    return store.write_out()


def take_then_ack(store, shown, count, window, locations):
    """Take ``window`` messages, then ack them one by one, until ``count`` are done."""
    done = 0
    while done < count:
        for at in range(window):
            store.peek(shown)
            store.shift()
            locations[at] = shown.location
        for at in range(window):
            store.delete(locations[at])
        store.write_out()
        done += window
    return done
