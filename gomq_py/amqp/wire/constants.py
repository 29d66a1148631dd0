"""Constants: the numbers of AMQP 0-9-1 that more than one module needs.

A leaf; the reply codes live in errors.
"""

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"  # §4.2.2

# Frame types (§4.2.3). 2 and 3 only ever follow a method that carries content.
FRAME_METHOD = 1
FRAME_HEADER = 2
FRAME_BODY = 3
FRAME_HEARTBEAT = 8
FRAME_END = 0xCE

FRAME_HEAD_SIZE = 7  # type octet, channel short, payload size long
FRAME_OVERHEAD = 8  # the head and the end octet
HEADER_OVERHEAD = 20  # the same of a header frame, with class, weight and body size
FRAME_MIN_SIZE = 4096  # §4.2.3: what every peer must accept before frame_max is negotiated
# RabbitMQ's and LavinMQ's default; larger frames starve the other channels of a connection
FRAME_MAX_DEFAULT = 131072
CHANNEL_MAX_DEFAULT = 2047  # RabbitMQ's default

CLASS_CONNECTION = 10
CLASS_CHANNEL = 20
CLASS_EXCHANGE = 40
CLASS_QUEUE = 50
CLASS_BASIC = 60
CLASS_CONFIRM = 85
CLASS_TX = 90

REPLY_SUCCESS = 200
SHORTSTR_MAX = 255
