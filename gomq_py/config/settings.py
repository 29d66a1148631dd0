"""Lists each option of the broker, with its INI key, flags, environment, kind, default and help.

The INI reader, the command line, ``etc/gomq.ini`` and ``docs/configuration.md`` follow this table. Sections,
keys and flags are LavinMQ's, plus GoMQ's flags. An option without effect in this version is ``pending``; the
broker warns at its start if such an option is set.
"""
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from typing import Any

from gomq_py.config.control import AUTO
from gomq_py.config.kinds import (
    ADDRESS, BOOLEAN, COUNT, ENDPOINTS, ETCD_PREFIX, FOLDER, KEEPALIVE, LOG_LEVEL, MEMORY, MODE, NAMES,
    NETWORKS, PASSWORD, PASSWORD_HASH, PATH, PORT, PROXY_PROTOCOL, SECRET, SOCKET_BUFFER, TEXT, Keepalive,
    Kind, choice, integer,
)

# Prefixes of an option's environment variable; the first one that is set wins. So LavinMQ's container and
# unit files work unchanged.
ENVIRONMENT_PREFIXES = ("GOMQ_", "LAVINMQ_")
# The first user's password, of which only the hash is kept. LavinMQ's variable holds a hash already.
PLAIN_PASSWORD, LAVINMQ_PASSWORD_HASH = "GOMQ_DEFAULT_PASSWORD", "LAVINMQ_DEFAULT_PASSWORD"
PASSWORD_FILE, PASSWORD_HASH_OF_IT = (f"{PLAIN_PASSWORD}_{kind}" for kind in ("FILE", "HASH"))
SECTION_ALIASES = {"http": "mgmt"}
SNI_PREFIX = "sni:"
# [shovel:NAME]; the shovels check its keys.
SHOVEL_PREFIX = "shovel:"

# Characters of a wrong value that an error repeats.
SHOWN_CHARACTERS = 200

# Loopback, link-local and unspecified addresses, in both families.
_OF_THIS_MACHINE = tuple(ip_network(network) for network in (
    "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "::/128", "::1/128", "fe80::/10"))


@dataclass(frozen=True)
class Option:
    """One option of the broker: a row of the table OPTIONS.

        name           the attribute's name; "": ``prefix`` and ``key`` together
        environment    names of variables, without their prefix
        aliases        deprecated (section, key) pairs that still work
        reloadable     a reload of the configuration changes it, without a restart
        pending        what this version lacks, so that the option has no effect; "": it has effect
        adjustable     an operator may change it over the management API, until the next reload
        shared         should be the same on all nodes of a cluster
    """

    section: str
    key: str
    kind: Kind
    default: Any
    help: str
    name: str = ""
    prefix: str = ""
    flags: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    reloadable: bool = False
    pending: str = ""
    adjustable: bool = False
    shared: bool = False

    @property
    def attribute(self) -> str:
        """Name of the option's attribute on ``Settings``: its key, with the section in front if ambiguous."""
        return self.name or self.prefix + self.key

    @property
    def metavar(self) -> str:
        """The word that stands for the option's value in ``--help``, such as PORT."""
        return self.key.rpartition("_")[2].upper()

    def is_off(self, value: Any) -> bool:
        """Return True if ``value`` is the default or switches the option off: -1, "", False, None, ()."""
        return value in (-1, "", False, None, ()) or value == self.default


def _tls_section(key: str) -> tuple[tuple[str, str], ...]:
    return (("amqp", key), ("mgmt", key))


_main, _amqp, _clustering, _experimental = (
    partial(Option, section) for section in ("main", "amqp", "clustering", "experimental"))
# Keys that other sections have, too, or that say little alone: the attribute has the section in front.
_mqtt, _oauth, _links = (
    partial(Option, section, prefix=f"{section}_") for section in ("mqtt", "oauth", "links"))
_mgmt = partial(Option, "mgmt", prefix="http_")

OPTIONS: tuple[Option, ...] = (
    # -- main ------------------------------------------------------------------------------------------------
    _main("data_dir", FOLDER, "/var/lib/gomq",
          "Folder of all data of the broker; made if it is missing.", flags=("-D", "--data-dir"),
          environment=("DATADIR",)),
    _main("log_level", LOG_LEVEL, "info", "Least severe message that is logged.", flags=("-l", "--log-level"),
          reloadable=True, adjustable=True),
    _main("log_file", PATH, "", "File that the log is appended to; empty for standard error.",
          reloadable=True),
    _main("log_format", choice("text", "json"), "text", "A line of text, or one JSON object per line.",
          reloadable=True),
    _main("pidfile", PATH, "", "File that holds the process id while the broker runs; empty for none.",
          flags=("--pidfile",)),
    _main("sync", BOOLEAN, True,
          "Flush to disk before a confirm leaves. Without it a power cut may lose confirmed messages.",
          flags=("--no-sync",), environment=("SYNC",), shared=True),
    _main("slow_sync_warning", integer(0, 3600), 5,
          "Seconds after which a flush that has not ended is logged, with its file; 0: never."),
    _main("stop_timeout", integer(0, 86400), 60,
          "Seconds that an orderly stop may take. After that the broker logs the reason and ends like a "
          "killed process, without losing confirmed messages. 0: no limit."),
    _main("segment_size", integer(65536, 268435456), 8388608,
          "Bytes of a message segment file. A segment is deleted when its last message has gone.",
          shared=True),
    _main("data_dir_lock", BOOLEAN, True, "Lock the data folder against a second broker.",
          flags=("--no-data-dir-lock",)),
    _main("default_consumer_prefetch", integer(0, 65535), 65535,
          "Unacknowledged messages a consumer may hold when its client has set no prefetch; 0 for no limit.",
          flags=("--default-consumer-prefetch",), environment=("DEFAULT_CONSUMER_PREFETCH",),
          aliases=(("amqp", "default_consumer_prefetch"),), reloadable=True, shared=True),
    _main("default_user", TEXT, "guest", "User made on the first boot of an empty data folder.",
          flags=("--default-user",), environment=("DEFAULT_USER",)),
    _main("default_password_hash", PASSWORD_HASH, "",
          "Password hash of that user, in RabbitMQ's form; empty for the password guest. "
          "$GOMQ_DEFAULT_PASSWORD takes the password itself, $GOMQ_DEFAULT_PASSWORD_FILE the path of a file "
          "with it.", flags=("--default-password-hash",), environment=("DEFAULT_PASSWORD_HASH",),
          aliases=(("main", "default_password"),)),
    _main("default_user_only_loopback", BOOLEAN, True,
          "Let the default user in from this machine only, over HTTP and WebSocket by its names and "
          "addresses only.", flags=("--default-user-only-loopback",),
          environment=("DEFAULT_USER_ONLY_LOOPBACK",), aliases=(("main", "guest_only_loopback"),),
          shared=True),
    _main("tcp_nodelay", BOOLEAN, True,
          "Send small writes at once instead of waiting for more (TCP_NODELAY).", reloadable=True),
    _main("tcp_keepalive", KEEPALIVE, Keepalive(60, 10, 3),
          "Probe silent TCP peers: idle:interval:probes in seconds, or false.", reloadable=True),
    _main("tcp_recv_buffer_size", SOCKET_BUFFER, 0,
          "Bytes of a socket's receive buffer; 0 leaves it to the system.", reloadable=True),
    _main("tcp_send_buffer_size", SOCKET_BUFFER, 0,
          "Bytes of a socket's send buffer; 0 leaves it to the system.", reloadable=True),
    _main("set_timestamp", BOOLEAN, False,
          "Give published messages a timestamp property where they have none.",
          aliases=(("amqp", "set_timestamp"),), pending="stamping messages"),
    _main("max_deleted_definitions", integer(1), 8192,
          "Deleted entries after which the definitions log is rewritten."),
    _main("socket_buffer_size", integer(1), 16384, "Bytes read from a socket at once in LavinMQ.",
          pending="a choice of read size"),
    _main("consumer_timeout", COUNT, 0,
          "Milliseconds a delivered message may stay unacknowledged; 0 for no limit. A queue's own timeout "
          "counts before this one.", aliases=(("amqp", "consumer_timeout"),), shared=True),
    _main("consumer_timeout_loop_interval", integer(1), 60,
          "Seconds between two looks for consumers past that time.",
          pending="a periodic check: overdue deliveries are noticed within two seconds without one"),
    _main("free_disk_min", COUNT, 0,
          "Free bytes of disk below which publishers are blocked; never less than three segments.",
          reloadable=True, adjustable=True),
    _main("free_disk_warn", COUNT, 0,
          "Free bytes of disk below which a warning is logged; never less than six segments.",
          reloadable=True),
    _main("memory_high_watermark", MEMORY, 0.6,
          "Memory above which publishers are blocked: a share of the memory of the machine or container, a "
          "number of bytes, or a size such as 512MiB; 0 for no limit. The rest is for the page cache.",
          reloadable=True, adjustable=True),
    _main("log_exchange", BOOLEAN, False,
          "Publish the log to the exchange amq.rabbitmq.log of the default virtual host.", shared=True),
    _main("event_exchange", BOOLEAN, False,
          "Publish the broker's events to the exchange amq.rabbitmq.event of the default vhost.",
          shared=True),
    _main("auth_backends", NAMES, (),
          "Backends that look users up, in this order: local, oauth; empty for local.", shared=True),
    _main("load_definitions", PATH, "", "Definitions (JSON) that a data folder imports once."),
    _main("default_consistent_hash_algorithm", choice("ring", "jump"), "ring",
          "Algorithm of x-consistent-hash exchanges without x-algorithm: ring or jump.", shared=True),
    _main("control_unix_path", PATH, AUTO,
          "Unix socket of gomq-py-ctl, whose owner may do everything; empty for none. auto: ctl.sock in "
          "/run/gomq-py where that belongs to the broker's user, else in $XDG_RUNTIME_DIR/gomq-py, else in "
          "the data folder.", flags=("--control-unix-path",), environment=("CONTROL_UNIX_PATH",)),
    _main("stats_interval", integer(100, 86400000), 5000,
          "Milliseconds between two samples of a curve; lists keep their order for as long."),
    _main("stats_log_size", integer(1, 10000), 120, "Samples that a curve has at most."),
    _main("metrics_http_bind", TEXT, "127.0.0.1", "Address of the metrics server.",
          flags=("--metrics-http-bind",)),
    _main("metrics_http_port", PORT, 15692, "Port of the metrics server.", flags=("--metrics-http-port",)),
    _main("tls_cert", PATH, "", "Certificate chain (PEM) of the TLS ports; no TLS port opens without it.",
          flags=("--tls-cert", "--cert"), environment=("TLS_CERT_PATH",), aliases=_tls_section("tls_cert"),
          reloadable=True),
    _main("tls_key", PATH, "",
          "Private key (PEM) of that certificate; empty when the certificate file holds it.",
          flags=("--tls-key", "--key"), environment=("TLS_KEY_PATH",), aliases=_tls_section("tls_key"),
          reloadable=True),
    _main("tls_ciphers", TEXT, "",
          "Ciphers of TLS 1.2 in OpenSSL's notation; empty for the library's choice.", flags=("--ciphers",),
          environment=("TLS_CIPHERS",), aliases=_tls_section("tls_ciphers"), reloadable=True),
    _main("tls_min_version", choice("1.2", "1.3"), "1.2", "Oldest TLS version that is accepted.",
          flags=("--tls-min-version",), environment=("TLS_MIN_VERSION",),
          aliases=_tls_section("tls_min_version"), reloadable=True),
    _main("tls_keylog_file", PATH, "", "File that TLS session keys are appended to, for debugging.",
          reloadable=True),
    _main("tls_ktls", BOOLEAN, False, "Leave encryption to the kernel where it can.", flags=("--tls-ktls",),
          reloadable=True),
    _main("tls_ca_cert", PATH, "", "Authorities (PEM) that vouch for clients' certificates.",
          reloadable=True),
    _main("tls_verify_peer", BOOLEAN, False, "Ask TLS clients for a certificate of one of these authorities.",
          reloadable=True),
    _main("tls_fail_if_no_peer_cert", BOOLEAN, True,
          "Refuse TLS clients without a certificate while tls_verify_peer is set.", reloadable=True),
    _main("ssl_cert_login_from", choice("distinguished_name", "common_name", "subject_alternative_name"),
          "distinguished_name", "Part of a client's certificate with the user name of EXTERNAL logins.",
          reloadable=True),
    _main("ssl_cert_login_san_type", choice("dns", "ip", "email", "uri"), "dns",
          "Kind of the subject alternative name, if that part is one.", reloadable=True),
    _main("ssl_cert_login_san_index", COUNT, 0, "Position among names of that kind.", reloadable=True),
    # -- amqp ------------------------------------------------------------------------------------------------
    _amqp("bind", TEXT, "127.0.0.1", "Address to listen on; :: or 0.0.0.0 for all.", name="amqp_bind",
          flags=("--amqp-bind",), environment=("AMQP_BIND",)),
    _amqp("port", PORT, 5672, "Port of AMQP.", name="amqp_port", flags=("-p", "--port", "--amqp-port"),
          environment=("AMQP_PORT",)),
    _amqp("tls_port", PORT, 5671, "Port of AMQP over TLS; opens only with tls_cert.", name="amqps_port",
          flags=("--amqps-port",), environment=("AMQPS_PORT",)),
    _amqp("unix_path", PATH, "", "Unix socket of AMQP; empty for none.", name="amqp_unix_path",
          flags=("--amqp-unix-path",)),
    _amqp("unix_mode", MODE, 0o660,
          "Permissions of that socket, in octal; users with write permission may connect.",
          name="amqp_unix_mode"),
    _amqp("heartbeat", integer(0, 65535), 60,
          "Seconds between heartbeats that are proposed to clients; 0 proposes none.", reloadable=True,
          shared=True),
    _amqp("frame_max", integer(4096, 134217728), 131072,
          "Largest frame in bytes. Larger ones keep other channels waiting.", shared=True),
    _amqp("initial_frame_max", integer(4096, 65536), 4096,
          "Largest frame in bytes before frame_max is negotiated, as in RabbitMQ. Raise it for long tokens "
          "and client properties.", reloadable=True),
    _amqp("channel_max", integer(1, 65535), 2047, "Channels a connection may open.", reloadable=True,
          shared=True),
    _amqp("max_message_size", integer(1, 264241152), 134217728,
          "Largest message body in bytes: 1 to 264241152, because a segment file must hold it with all its "
          "properties.", reloadable=True, shared=True),
    _amqp("max_consumers_per_channel", COUNT, 0, "Consumers a channel may have; 0 for no limit.",
          reloadable=True, shared=True),
    _amqp("max_consumers_per_connection", COUNT, 16384,
          "Consumers all channels of a connection may have together; 0 for no limit. Each costs about 1.5 "
          "KiB."),
    _amqp("max_unacked_per_channel", COUNT, 2097152,
          "Messages a channel may hold unacknowledged, whatever its prefetch; 0 for no limit. Each costs 20 "
          "to 40 bytes."),
    _amqp("max_table_depth", integer(1, 32), 32,
          "Levels of nested tables and arrays in headers and arguments. No client needs more than a "
          "handful; reading takes stack."),
    _amqp("max_table_entries", integer(256), 8192,
          "Entries that headers or arguments may have, nested ones included. Each is an object while it is "
          "looked at."),
    _amqp("max_topic_words", COUNT, 65536,
          "Words in all patterns of a topic exchange that have words after a #; 0 for no limit. Each "
          "routing key is compared with all of them."),
    _amqp("max_unread_output", integer(65536), 1048576,
          "Bytes of answers that a client may leave unread before nothing more is read from it."),
    _amqp("unread_timeout", integer(1, 86400), 30, "Seconds after which such a client is closed."),
    _amqp("max_unfinished_bodies", integer(1048576), 268435456,
          "Bytes of bodies that have not arrived whole, over all connections: two of the largest by "
          "default. Beyond it a body waits unless it has a share left of a reserve as large."),
    _amqp("max_large_output", integer(1048576), 268435456,
          "Bytes of messages over 128 KiB that have been delivered but not read, over all connections. "
          "Beyond three quarters of it a consumer waits unless it has a share of the rest left."),
    _amqp("max_connections", COUNT, 0,
          "Connections at once; 0 for no limit but three quarters of the process's descriptors. The rest is "
          "for files.", reloadable=True),
    _amqp("max_connections_per_address", COUNT, 0,
          "Connections at once from one address; 0 for no limit, because a whole fleet may share one "
          "address.", reloadable=True),
    _amqp("max_pending_logins", integer(1), 1024,
          "Connections that have not logged in yet. Beyond it the address with the most such connections "
          "loses its oldest ones.", reloadable=True),
    _amqp("max_octets_before_login", integer(8192), 65536,
          "Bytes that a client may send until its login is done: four frames of at most initial_frame_max "
          "bytes, and the frames that it sends ahead.", reloadable=True),
    _amqp("login_timeout", integer(1, 3600), 10,
          "Seconds a new connection has until its login is done, not counting waits for its password to be "
          "checked.", reloadable=True),
    _amqp("listen_backlog", integer(1, 65535), 1024,
          "Connections that wait in the kernel until they are accepted."),
    _amqp("reuse_port", BOOLEAN, False, "Let other processes listen on the same port (SO_REUSEPORT)."),
    _amqp("tcp_proxy_protocol", PROXY_PROTOCOL, 0,
          "Expect a PROXY protocol header, of either version, on TCP connections from the trusted sources, "
          "of AMQP and of MQTT.", reloadable=True),
    _amqp("proxy_protocol_trusted_sources", NETWORKS, (),
          "Addresses and networks of proxies; empty for proxies on this machine only.", reloadable=True),
    _amqp("amqp_systemd_socket_name", TEXT, "amqp",
          "Name (FileDescriptorName=) of the sockets that systemd hands over for AMQP."),
    _amqp("websocket", BOOLEAN, True, "Serve AMQP over WebSocket, too, on the ports of the management API.",
          name="amqp_websocket", reloadable=True),
    # -- mqtt ------------------------------------------------------------------------------------------------
    _mqtt("bind", TEXT, "127.0.0.1", "Address to listen on; :: or 0.0.0.0 for all.", flags=("--mqtt-bind",),
          environment=("MQTT_BIND",)),
    _mqtt("port", PORT, 1883,
          "Port of MQTT. If no setting names the port and 1883 is in use, the broker starts without MQTT.",
          flags=("--mqtt-port",), environment=("MQTT_PORT",)),
    _mqtt("tls_port", PORT, 8883, "Port of MQTT over TLS; opens only with tls_cert.", name="mqtts_port",
          flags=("--mqtts-port",), environment=("MQTTS_PORT",)),
    _mqtt("unix_path", PATH, "", "Unix socket of MQTT; empty for none.", flags=("--mqtt-unix-path",)),
    _mqtt("unix_mode", MODE, 0o660,
          "Permissions of that socket, in octal; users with write permission may connect."),
    _mqtt("default_vhost", TEXT, "/", "Virtual host of clients that name none.", shared=True),
    _mqtt("exchange", TEXT, "amq.topic",
          "Topic exchange for MQTT publishes and subscriptions, in each virtual host without its own "
          "parameter (component mqtt, name exchange).", shared=True),
    _mqtt("max_connections", COUNT, 0,
          "MQTT connections at once; 0 for no limit but that of the process's descriptors.", reloadable=True),
    _mqtt("max_connections_per_address", COUNT, 0,
          "MQTT connections at once from one address; 0 for no limit, for fleets that share one.",
          reloadable=True),
    _mqtt("max_pending_logins", integer(1), 1024,
          "MQTT connections that have not logged in yet. Beyond it the address with the most such "
          "connections loses its oldest ones.", reloadable=True),
    _mqtt("max_octets_before_login", integer(8192), 65536,
          "Bytes of the CONNECT packet; a token or a will may need more.", reloadable=True),
    _mqtt("login_timeout", integer(1, 3600), 10,
          "Seconds a new connection has until its login is done, not counting waits for its password to be "
          "checked.", reloadable=True),
    _mqtt("websocket", BOOLEAN, True, "Serve MQTT over WebSocket, too, on the ports of the management API.",
          reloadable=True),
    _mqtt("permission_check_enabled", BOOLEAN, True,
          "Check the rights of MQTT clients; false lets every logged-in client publish and subscribe to "
          "everything.", shared=True),
    _mqtt("anonymous_user", TEXT, "",
          "User whose rights clients without a user name get; empty refuses them.", shared=True),
    _mqtt("client_id_validation", choice("none", "username", "owner"), "none",
          "Client ids that a user may have: none for any, username for its own name only, owner for any "
          "whose session no other user has begun.", reloadable=True, shared=True),
    _mqtt("max_inflight_messages", integer(1, 65535), 65535,
          "Unacknowledged messages of QoS 1 and 2 to one client, or fewer if the client asks for fewer. "
          "Also the unanswered publishes of one MQTT 5 client.", reloadable=True),
    _mqtt("max_packet_size", integer(1, 268435455), 268435455,
          "Largest packet in bytes that a client may send. MQTT 5 clients are told; a larger packet ends "
          "the connection. 268435455 is the largest of MQTT. For the CONNECT packet max_octets_before_login "
          "counts, too.", reloadable=True, shared=True),
    _mqtt("max_keep_alive", integer(0, 65535), 0,
          "Longest keep alive in seconds: an MQTT 5 client that asks for more, or for none, gets this one. "
          "0 for any, because battery-powered clients choose long ones.", reloadable=True),
    _mqtt("max_session_expiry", integer(0, 4294967295), 4294967295,
          "Longest time in seconds that a session is kept without a connection; 4294967295 for ever, as "
          "clients of MQTT 3.1.1 ask for.", reloadable=True, shared=True),
    _mqtt("max_sessions_per_user", COUNT, 10000,
          "Sessions of one user in a virtual host that are kept without a connection, each with about 2 KiB "
          "of memory and some disk; 0 for no limit. It stops a client that uses a new client id for every "
          "connection; a larger fleet with one user name needs more.", reloadable=True),
    _mqtt("max_session_octets", COUNT, 1073741824,
          "Bytes that are kept for one session, topics and properties included; 0 for no limit. It stops a "
          "client that never comes back from filling the disk. A change counts from the client's next "
          "connection on.", reloadable=True),
    _mqtt("session_overflow", choice("drop-head", "reject-publish"), "drop-head",
          "Effect of that limit: drop-head drops the oldest messages, because the latest values are worth "
          "most; reject-publish refuses new ones and tells their publisher.", reloadable=True, shared=True),
    _mqtt("max_subscriptions", integer(1), 10000,
          "Subscriptions of one session, of about 2 KiB of memory each.", reloadable=True),
    _mqtt("max_topic_levels", integer(1, 200), 200,
          "Levels of a topic filter; each costs a step for every message that may match. 200 is Mosquitto's "
          "limit.", reloadable=True, shared=True),
    _mqtt("max_retained_messages", integer(1), 1000000,
          "Topics of a virtual host with a retained message, of some 150 bytes of memory each. A message "
          "that would need another topic is refused.", reloadable=True),
    _mqtt("max_retained_octets", integer(1), 1073741824,
          "Bytes of the payloads of a virtual host's retained messages. Their files stay open, two for "
          "each 8 MiB.", reloadable=True),
    _mqtt("will_grace", integer(0, 86400), 10,
          "Seconds that clients have to reconnect after a kill of the broker before their wills are "
          "published. An orderly stop publishes the wills of connected clients at once, except those with a "
          "delay.",
          reloadable=True),
    _mqtt("mqtt_systemd_socket_name", TEXT, "mqtt",
          "Name (FileDescriptorName=) of the sockets that systemd hands over for MQTT.",
          name="mqtt_systemd_socket_name"),
    # -- mgmt ------------------------------------------------------------------------------------------------
    _mgmt("bind", TEXT, "127.0.0.1", "Address to listen on.", flags=("--http-bind",),
          environment=("HTTP_BIND",)),
    _mgmt("port", PORT, 15672, "Port of the management API.", flags=("--http-port",),
          environment=("HTTP_PORT",)),
    _mgmt("tls_port", PORT, 15671, "Port of the management API over TLS; opens only with tls_cert.",
          name="https_port", flags=("--https-port",), environment=("HTTPS_PORT",)),
    _mgmt("unix_path", PATH, "", "Unix socket of the management API; empty for none.",
          flags=("--http-unix-path",)),
    _mgmt("http_systemd_socket_name", TEXT, "http",
          "Name (FileDescriptorName=) of the sockets that systemd hands over for the management API.",
          name="http_systemd_socket_name"),
    _mgmt("max_connections", integer(1), 256,
          "Connections at once on each port of the management and the metrics; a dashboard uses half a "
          "dozen. Beyond it the one that has kept the broker waiting longest is closed.", reloadable=True),
    _mgmt("max_connections_per_address", COUNT, 128,
          "Connections at once from one address; 0 for no limit. Half of all by default.",
          reloadable=True),
    _mgmt("max_octets_before_login", integer(8192), 1048576,
          "Bytes read of a request's head, and of the body of a refused one.",
          reloadable=True),
    _mgmt("request_timeout", integer(1, 3600), 20,
          "Seconds that a client may take to send a request's head. Sending the body and reading the answer "
          "have one second more for every 4 KiB.", reloadable=True),
    _mgmt("idle_timeout", integer(1, 86400), 60,
          "Seconds between two requests of a connection; browsers and scrapers ask more often.",
          reloadable=True),
    _mgmt("max_requests_per_connection", integer(1), 1000,
          "Requests after which a connection is closed with the answer, so that a balancer spreads clients "
          "anew.", reloadable=True),
    _mgmt("websocket_origins", NAMES, (),
          "Origins whose pages may open WebSockets (https://app.example.com); * for any, empty for the "
          "origin of this port only. Programs that send no origin are not checked.", name="websocket_origins",
          reloadable=True),
    # -- clustering ------------------------------------------------------------------------------------------
    _clustering("enabled", BOOLEAN, False,
                "Elect the leader through etcd: nodes with the same etcd_prefix are one cluster.",
                name="clustering", flags=("--clustering",), environment=("CLUSTERING",)),
    _clustering("replicate", BOOLEAN, False,
                "Serve followers, nodes with `follow`, which keep a copy of this node's data folder.",
                name="cluster", flags=("--cluster",), environment=("CLUSTER",)),
    _clustering("follow", ADDRESS, "",
                "host:port of a leader: this node keeps a copy of its data folder and serves no clients, "
                "until 'gomq-py-ctl promote' makes it the leader. Empty: this node leads.",
                name="cluster_leader", flags=("--cluster-leader",), environment=("CLUSTER_LEADER",)),
    _clustering("secret_file", PATH, "",
                "File with the secret that leader and followers share, of at least 16 bytes; white space "
                "around it is ignored.", name="cluster_secret_file", flags=("--cluster-secret-file",),
                environment=("CLUSTER_SECRET_FILE",)),
    _clustering("password", SECRET, "",
                "The secret itself, in place of secret_file. Other users of the machine see the flags of a "
                "process.", name="cluster_password", flags=("--cluster-password",),
                environment=("CLUSTER_PASSWORD",)),
    _clustering("tls_cert", PATH, "",
                "Certificate (PEM) of this node for leader and followers; with it a leader serves TLS to "
                "followers.", name="cluster_tls_cert"),
    _clustering("tls_key", PATH, "", "Key of that certificate; empty: it is in the same file.",
                name="cluster_tls_key"),
    _clustering("tls_ca_cert", PATH, "",
                "Authorities (PEM). A follower connects over TLS and checks the leader's certificate; a "
                "leader asks its followers for theirs.", name="cluster_tls_ca_cert"),
    _clustering("bind", TEXT, "127.0.0.1", "Address to listen on for followers.", name="clustering_bind",
                flags=("--clustering-bind", "--cluster-bind"), environment=("CLUSTERING_BIND",)),
    _clustering("port", PORT, 5679, "Port for followers.", name="clustering_port",
                flags=("--clustering-port", "--cluster-port"), environment=("CLUSTERING_PORT",)),
    _clustering("advertised_uri", TEXT, "",
                "host:port at which the other nodes of an elected cluster reach this one's cluster port; a "
                "scheme such as tcp:// is ignored. Empty: the host's name, and the port.",
                flags=("--clustering-advertised-uri",), environment=("CLUSTERING_ADVERTISED_URI",)),
    _clustering("etcd_endpoints", ENDPOINTS, ("localhost:2379",),
                "Servers of etcd 3.4 or later: host, host:port, or an http:// or https:// URL of them, "
                "comma separated.", flags=("--clustering-etcd-endpoints",),
                environment=("CLUSTERING_ETCD_ENDPOINTS",)),
    _clustering("etcd_prefix", ETCD_PREFIX, "gomq", "Prefix of the keys in etcd.",
                flags=("--clustering-etcd-prefix",), environment=("CLUSTERING_ETCD_PREFIX",)),
    _clustering("etcd_user", TEXT, "",
                "User for a login at etcd, with rights to read and write all keys below the prefix; empty: "
                "none.", environment=("CLUSTERING_ETCD_USER",)),
    _clustering("etcd_password", PASSWORD, "", "Password of that user.",
                environment=("CLUSTERING_ETCD_PASSWORD",)),
    _clustering("etcd_tls_ca_cert", PATH, "",
                "Authorities (PEM) of the certificates of https:// endpoints; empty: the system's."),
    _clustering("etcd_tls_cert", PATH, "", "Certificate (PEM) of this node for etcd; empty: none."),
    _clustering("etcd_tls_key", PATH, "", "Key of that certificate; empty: it is in the same file."),
    _clustering("on_leader_elected", TEXT, "", "Command that runs when this node becomes the leader.",
                flags=("--clustering-on-leader-elected",)),
    _clustering("on_leader_lost", TEXT, "", "Command that runs when this node stops being the leader.",
                flags=("--clustering-on-leader-lost",)),
    _clustering("lease_ttl", integer(2, 3600), 5,
                "Seconds without contact to etcd after which an elected leader is replaced. It delivers and "
                "confirms nothing after 0.8 of them.", flags=("--clustering-lease-ttl",),
                shared=True),
    _clustering("ack_timeout", integer(1, 3600), 3,
                "Seconds without progress after which confirms stop waiting for an in-sync follower. It "
                "cannot be elected until it has caught up.", flags=("--clustering-ack-timeout",),
                shared=True),
    _clustering("min_isr", integer(1, 64), 1,
                "Least number of nodes, the leader included, that have every confirmed message. With fewer "
                "in sync nothing is confirmed, and publishers are blocked.", flags=("--clustering-min-isr",),
                shared=True),
    _clustering("max_lag_bytes", integer(1 << 20), 64 << 20,
                "Bytes of changes by which an in-sync follower may be behind; beyond it publishers are "
                "blocked.", flags=("--clustering-max-lag-bytes",), shared=True),
    _clustering("max_unsynced_actions", COUNT, 0, "Without effect in LavinMQ too.",
                pending="unsynced followers in the in-sync set"),
    # -- oauth -----------------------------------------------------------------------------------------------
    _oauth("issuer", TEXT, "", "Issuer of accepted tokens.", shared=True),
    _oauth("client_id", TEXT, "", "Client id of the management pages."),
    _oauth("mgmt_base_url", TEXT, "", "Address of the management pages."),
    _oauth("mgmt_scopes", TEXT, "openid profile", "Scopes that the management pages ask for."),
    _oauth("resource_server_id", TEXT, "", "This broker's name in scopes.", shared=True),
    _oauth("preferred_username_claims", NAMES, ("sub", "client_id"), "Claims that hold the user name."),
    _oauth("additional_scopes_keys", NAMES, (), "Claims that hold more scopes."),
    _oauth("scope_prefix", TEXT, "", "Prefix of the scopes for this broker.", shared=True),
    _oauth("verify_aud", BOOLEAN, True, "Refuse tokens for another audience."),
    _oauth("audience", TEXT, "", "Audience of accepted tokens.", shared=True),
    _oauth("jwks_cache_ttl", integer(1), 3600, "Seconds that the issuer's keys are kept."),
    # -- links -----------------------------------------------------------------------------------------------
    _links("tls_folder", PATH, "",
           "Folder of the files that URIs of shovels and upstreams may name (cacertfile, certfile, "
           "keyfile); empty: none.", reloadable=True),
    _links("amqp_hosts_denied", NETWORKS, (),
           "Addresses and networks that shovels and upstreams may not connect to over AMQP. A host name is "
           "resolved and checked at each connection.", reloadable=True),
    _links("amqp_hosts_allowed", NETWORKS, (), "Exceptions from amqp_hosts_denied.", reloadable=True),
    _links("http_hosts_denied", NETWORKS, _OF_THIS_MACHINE,
           "Addresses and networks that shovels may not post to, by default this machine's own and "
           "link-local ones, where services trust all clients. Over AMQP only administrators' shovels and "
           "upstreams may connect there, unless `amqp_hosts_allowed` has them.", reloadable=True),
    _links("http_hosts_allowed", NETWORKS, (), "Exceptions from http_hosts_denied.", reloadable=True),
    # -- experimental ----------------------------------------------------------------------------------------
    _experimental("yield_each_received_bytes", integer(1), 131072,
                  "Bytes read from a connection before others have their turn.",
                  pending="a choice of fairness"),
    _experimental("yield_each_delivered_bytes", integer(1), 1048576,
                  "Bytes delivered to a consumer before others have their turn.",
                  pending="a choice of fairness"),
)

SECTIONS = tuple(dict.fromkeys(option.section for option in OPTIONS))
BY_KEY = {(option.section, option.key): option for option in OPTIONS}
BY_KEY_OR_ALIAS = {alias: option for option in OPTIONS for alias in option.aliases} | BY_KEY
BY_ATTRIBUTE = {option.attribute: option for option in OPTIONS}
assert len(BY_ATTRIBUTE) == len(OPTIONS)

# Keys of a [sni:host] section; each also with amqp_, mqtt_ or http_ in front.
SNI_KEYS = (
    "tls_cert", "tls_key", "tls_min_version", "tls_ciphers", "tls_verify_peer", "tls_ca_cert",
    "tls_keylog_file", "tls_fail_if_no_peer_cert")
SNI_PROTOCOLS = ("amqp_", "mqtt_", "http_")


def complaint(option: Option, place: str, value: Any, error: ValueError) -> str:
    """Return the error text for a wrong value at ``place``, without secrets. ``error`` says what is valid."""
    return f"{place}: {'what is given' if option.kind.secret else shortened(value)} is not {error}"


def shortened(value: Any) -> str:
    """Return a value as text for an error message, cut to SHOWN_CHARACTERS."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than the interpreter converts
        return f"a number of {value.bit_length()} bits"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


class Settings:
    """The values of all options, as attributes (``settings.amqp_port``), and where each was given."""

    def __init__(self, **values: Any):
        """Set options by attribute name, others to their defaults. Raises TypeError for an unknown name."""
        for option in OPTIONS:
            setattr(self, option.attribute, option.default)
        self.origins: dict[str, str] = {}
        self.sni: dict[str, dict[str, Any]] = {}
        """{host name: {key, as in its [sni:HOST] section: value}}"""
        self.first_users: dict[str, str] = {}
        """{name: bcrypt hash} of users made on the first boot instead of the default user; only dispatchd's
        configuration has them.
        """
        self.shovels: dict[str, dict[str, str]] = {}
        """{name: {key: text}}, as in its [shovel:NAME] section."""
        for attribute, value in values.items():
            self.set(attribute, value, "argument")

    @classmethod
    def checked(cls, **values: Any) -> "Settings":
        """Return Settings of ``values``, {attribute name: value or text}, checked like a configuration
        file's. Raises TypeError for an unknown name, ValueError for a wrong value.
        """
        for attribute, value in values.items():
            option = BY_ATTRIBUTE.get(attribute)
            if option is None:
                import difflib  # imported here, for mistyped names only: 0.2 MB
                near = difflib.get_close_matches(attribute, BY_ATTRIBUTE, 1)
                raise TypeError(f"no such setting: {attribute}" + (f"; is {near[0]} meant?" if near else ""))
            try:
                values[attribute] = option.kind.check(value)
            except ValueError as error:
                raise ValueError(complaint(option, attribute, value, error)) from None
        return cls(**values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no such setting: {name}")

    def set(self, attribute: str, value: Any, origin: str) -> None:
        """Set an option given at ``origin`` ("--port", "gomq.ini:3"). Raises TypeError for unknown names."""
        if attribute not in BY_ATTRIBUTE:
            raise TypeError(f"no such setting: {attribute}")
        setattr(self, attribute, value)
        self.origins[attribute] = origin

    def missing(self) -> str | None:
        """Return an error text if settings for copies on other nodes are incomplete or conflict, or None."""
        # An operator would rely on the copies.
        if self.clustering and (self.cluster or self.cluster_leader):
            return (
                f"{self.origin('clustering')}: `enabled` of [clustering] excludes `replicate` and `follow`: "
                "the nodes of an elected cluster do both by themselves")
        if (self.cluster or self.clustering) and self.clustering_port < 0:
            key = "enabled" if self.clustering else "replicate"
            return f"{self.origin('clustering_port')}: `{key}` of [clustering] needs a port"
        for attribute, key in (("cluster", "replicate"), ("cluster_leader", "follow")):
            if getattr(self, attribute) and not (self.cluster_secret_file or self.cluster_password):
                return (
                    f"{self.origin(attribute)}: `{key}` of [clustering] needs the secret that leader and "
                    "followers share: set `secret_file`"
                )
        return None

    def origin(self, attribute: str) -> str:
        """Return where the option's value was given: "--port", "gomq.ini:12", or "default"."""
        return self.origins.get(attribute, "default")
