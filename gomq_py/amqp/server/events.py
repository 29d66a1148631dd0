"""Events of the AMQP server: makes the headers of events about channels and consumers, with RabbitMQ's names.

Each function makes the headers of one kind of event, and is called only if a listener or a binding wants such
events. broker.signals.events makes the headers of events about logins and connections.
"""
# The protocol's name in events.
PROTOCOL = "{0,9,1}"


def channel_created(channel):
    """Return the headers of a ``channel.created`` event, as a dict."""
    connection = channel.connection
    return {
        **channel_closed(channel), "user": connection.user.name, "vhost": connection.vhost.name,
    }


def channel_closed(channel):
    return {
        "name": channel_name(channel), "pid": channel_name(channel), "connection": channel.connection.name,
        "number": channel.id,
    }


def consumer_created(consumer):
    return {
        **consumer_deleted(consumer), "exclusive": bool(consumer.exclusive),
        "ack_required": not consumer.no_ack,
        "prefetch_count": consumer.prefetch, "arguments": consumer.arguments or {},
    }


def consumer_deleted(consumer):
    """Return the headers of a ``consumer.deleted`` event."""
    queue = consumer.source
    return {
        "consumer_tag": consumer.tag, "channel": channel_name(consumer.channel), "queue": queue.name,
        "vhost": queue.vhost,
    }


def channel_name(channel):
    """Return the channel's name in RabbitMQ's form: connection name and channel number in parentheses."""
    return f"{channel.connection.name} ({channel.id})"
