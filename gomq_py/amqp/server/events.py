"""Events of the AMQP server: makes the headers of events about channels and consumers, with RabbitMQ's names.
For logins and connections, broker.signals.events makes the headers.

The connection emits the events through the broker's Events. Each function makes the headers of one kind of
event, and is called only if a listener or a binding wants such events.
"""
# The protocol's name in events.
PROTOCOL = "{0,9,1}"


def channel_created(channel):
    """Return the headers of a ``channel.created`` event, as a dict."""
    connection = channel.connection
    return {
        "name": channel_name(channel), "pid": channel_name(channel), "connection": connection.name,
        "number": channel.id, "user": connection.user.name, "vhost": connection.vhost.name,
    }


def channel_closed(channel):
    """Return the headers of a ``channel.closed`` event, as a dict."""
    return {
        "name": channel_name(channel), "pid": channel_name(channel), "connection": channel.connection.name,
        "number": channel.id,
    }


def consumer_created(consumer):
    """Return the headers of a ``consumer.created`` event, as a dict."""
    return {
        **consumer_deleted(consumer), "exclusive": bool(consumer.exclusive),
        "ack_required": not consumer.no_ack,
        "prefetch_count": consumer.prefetch, "arguments": consumer.arguments or {},
    }


def consumer_deleted(consumer):
    """Return the headers of a ``consumer.deleted`` event, as a dict."""
    queue = consumer.source
    return {
        "consumer_tag": consumer.tag, "channel": channel_name(consumer.channel), "queue": queue.name,
        "vhost": queue.vhost,
    }


def channel_name(channel):
    """Return the channel's name in RabbitMQ's form: connection name and channel number in parentheses."""
    return f"{channel.connection.name} ({channel.id})"
