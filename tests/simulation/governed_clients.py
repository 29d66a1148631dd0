"""Governed clients: AMQP clients with users of their own in a vhost where an operator grants and withdraws.

A client does one thing after another on one channel: it publishes with confirms, or consumes and gets. What
it may not do it tries all the same, and each answer and each refusal goes to the vhost's ledger with the
moment in which it asked.
"""
from collections import deque

from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.content.properties import Properties
from tests.simulation.amqp_clients import EXPECTED, AMQPClient, awaited
from tests.simulation.vhost_ledger import CONNECTIONS, EXTRA, LETTERS, VHOST
from tests.simulation.world import without_places

CLOSES = (methods.ConnectionClose, methods.ChannelClose)
MOST_UNCONFIRMED = 5
AGAIN_S = (0.2, 1.0)  # after a refusal
CAPABILITIES = {"authentication_failure_close": True, "consumer_cancel_notify": True}
# The methods that a refusal names, and the rights that they take.
RIGHTS = {
    methods.BasicPublish.ID: "write", methods.BasicConsume.ID: "read", methods.BasicGet.ID: "read",
    methods.QueueDeclare.ID: "configure", methods.QueueDelete.ID: "configure"}


class GovernedClient(AMQPClient):
    """``ledger``: a VHostLedger. ``publishes`` and ``consumes``: names of its queues, or None."""

    def __init__(self, world, network, name, ledger, user, publishes, consumes):
        super().__init__(world, network, name, None, [])
        self.ledger = ledger
        self.user = user
        self.floor_s = 0.0  # what comes now the broker has not sent before that
        self._capabilities = CAPABILITIES if self.random.random() < 0.7 else {
            "authentication_failure_close": True}
        self._presence = None
        self._again_s = 0.0
        self._channels = [GovernedChannel(self, 1, publishes, consumes)]
        world.say(name, f"is {user}, publishes to {publishes}, consumes from {consumes}")

    # its connection

    def _connect(self):
        if self.world.now_s < self._again_s:
            self.world.at(self._again_s, self._connect)
        else:
            super()._connect()

    def gone(self):
        self._presence = None
        super().gone()

    def login(self):
        ledger = self.ledger
        yield from self._awaited(methods.ConnectionStart)
        self._password, self._asked_s = self._some_password(), self.world.now_s
        self.tell(0, methods.ConnectionStartOk(
            client_properties={"capabilities": self._capabilities}, mechanism="PLAIN",
            response=f"\0{self.user}\0v{self._password}".encode(), locale="en_US"))
        yield from self._awaited(methods.ConnectionTune)
        self._check_login(True)
        self.tell(0, methods.ConnectionTuneOk(channel_max=2047, frame_max=self.frame_max, heartbeat=0))
        self._presence = ledger.enters(self.user, self._end)
        self._asked_s = self.world.now_s
        self.tell(0, methods.ConnectionOpen(virtual_host=ledger.name))
        yield from self._awaited(methods.ConnectionOpenOk)
        self._check_entry(VHOST, True)
        self._check_entry(("right", self.user), True)
        ledger.has_entered(self._presence)
        self.floor_s = self._asked_s
        self.opened()
        self._channels[0].open(self._end)
        yield

    def _some_password(self):
        """That of now, or another one."""
        values = sorted(self.ledger.things["user", self.user].now - {None})
        if values and (self.is_calm or self.random.random() < 0.9):
            return values[-1]
        return self.random.randrange(1 + max(values, default=0))

    def _check_login(self, happened):
        password = self._password
        self.ledger.check(
            ("user", self.user), lambda value: value is not None and value == password, happened,
            self._asked_s, f"{self.user} {'is let in' if happened else 'is refused'} with v{password}")

    def _check_entry(self, key, happened):
        self.ledger.check(key, lambda value: value not in (None, False), happened, self._asked_s,
                          f"{self.user} may {'' if happened else 'not '}enter")

    def hears(self, asked_s):
        """It was answered what it asked then."""
        self.floor_s = max(self.floor_s, asked_s)
        self.ledger.hears(self._presence, asked_s)

    def leave(self, why, stays_s=0.0):
        if self._presence is not None:
            self.ledger.leaves(self._presence)
        super().leave(why, stays_s)

    def _take_method(self, channel, method):
        if isinstance(method, CLOSES):
            text = f"is told {method.reply_code} {without_places(method.reply_text)}"
            self.say(text)
            self._again_s = self.world.now_s + self.random.choice(AGAIN_S)
            if isinstance(method, methods.ConnectionClose):
                self._check_end(text)
                self.leave("goes")
            else:
                self._channels[0].refused(method, text)
        else:
            super()._take_method(channel, method)

    def _check_end(self, text):
        """Why the broker ends its connection, or does not let it in."""
        ledger = self.ledger
        if "Login was refused" in text:
            self._check_login(False)
        elif " 530 " in text and "connection limit (" in text:
            ledger.is_kept_out(
                self._presence, ("user limit", self.user) if "user connection" in text else CONNECTIONS)
        elif " 530 " in text and "not found" in text:
            self._check_entry(VHOST, False)
        elif " 530 " in text and "refused for user" in text:
            self._check_entry(("right", self.user), False)
        elif not any(expected in text for expected in EXPECTED):
            ledger.find(f"{self.name} {text}")

    def close(self):
        self.leave("hangs up")

    def used_rights(self):
        """Those that it was answered by."""
        return self._channels[0].used_rights()


class GovernedChannel:
    """What it asks is answered in order. ``_consuming``: the tag of its consumer, or None."""

    def __init__(self, client, number, publishes, consumes):
        self._client = client
        self._ledger = client.ledger
        self._random = client.random
        self._number = number
        queues = client.ledger.queues
        self._publishes = publishes and queues[publishes]
        self._consumes = consumes and queues[consumes]
        self._asked = deque()  # (the answers' kinds, what to call with it, when it was asked)
        self._tags = 0
        self._unconfirmed = {}  # delivery tag -> Sent
        self.lose()

    def lose(self):
        """Its connection, or itself, is lost."""
        self._is_open = False
        self._consuming = None
        self._held = 0  # delivery tag of what came last
        self._tag = 0
        for message in self._unconfirmed.values():
            message.is_under_way = False
        self._unconfirmed.clear()
        self._asked.clear()

    shut = lose

    def awaits(self):
        """As a client's."""
        return awaited(self._asked, self._unconfirmed)

    def is_idle(self):
        """Whether it waits for nothing."""
        return self._is_open and not self._asked and not self._unconfirmed

    def used_rights(self):
        """As its client's."""
        is_used = {"read": self._consuming is not None, "write": self._tag > 0}
        return [verb for verb, used in is_used.items() if used and self.is_idle()]

    def check_confirmed(self):
        """It is not closed in order."""

    # what it asks

    def open(self, end):
        """There is a connection."""
        self._end = end
        self._ask(methods.ChannelOpen(), methods.ChannelOpenOk)
        self._ask(methods.ConfirmSelect(), methods.ConfirmSelectOk, self._opened)

    def _opened(self, _method, _asked_s):
        self._is_open = True

    def _ask(self, method, answers, then=lambda method, asked_s: None):
        self._asked.append((answers, then, self._client.world.now_s, method.ID))
        self._client.waits()
        self._client.tell(self._number, method)

    # what it is told

    def take(self, method, properties=b"", body=b""):
        """Something has come."""
        kind = type(method)
        if kind in (methods.BasicAck, methods.BasicNack):
            self._settled(method, kind is methods.BasicAck)
        elif kind is methods.BasicReturn:
            self._returned(body)
        elif kind is methods.BasicDeliver:
            self._take_message(method, body)
        elif kind is methods.BasicCancel:
            self._cancelled(method)
        elif not self._asked or not isinstance(method, self._asked[0][0]):
            self._ledger.find(f"{self._client.name} was told {method}, and has asked {self._asked}")
        else:
            _, then, asked_s, asked_id = self._asked.popleft()
            if asked_id in RIGHTS:
                self._check_right(asked_id, asked_s, True)
            then(method, asked_s)
            self._client.hears(asked_s)
            if kind is methods.BasicGetOk:
                self._take_message(method, body)
                self._ledger.check_length(
                    self._consumes, method.message_count, asked_s,
                    self._ledger.under_way(self._consumes, asked_s))
        self._client.heard()

    def _settled(self, method, is_accepted):
        tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag] if method.multiple else [
            method.delivery_tag]
        for tag in tags:
            message = self._unconfirmed.pop(tag)
            message.is_under_way = False
            self._client.say(f"{'is confirmed' if is_accepted else 'is refused'} {message.number}")
            self._client.hears(message.published_s)
            if not is_accepted:
                self._ledger.check_refusal(message)
                continue
            self._check_right(methods.BasicPublish.ID, message.published_s, True)
            if message.is_returned:
                self._ledger.check_absent(message.queue, message.published_s)
            else:
                self._ledger.accept(message)

    def _returned(self, body):
        number = self._ledger.number_of(body)
        if number is not None:
            self._client.say(f"has {number} back")
            self._ledger.messages[number].is_returned = True

    def _take_message(self, method, body):
        number = self._ledger.number_of(body)
        self._held = method.delivery_tag
        if number is None:
            return
        floor_s = max(self._client.floor_s, self._ledger.messages[number].published_s)
        self._client.say(f"takes {number}{' again' if method.redelivered else ''} of {self._consumes.name}")
        self._check_right(methods.BasicConsume.ID, floor_s, True)
        self._ledger.deliver(number, self._consumes, method.redelivered, floor_s)

    def _check_right(self, method_id, since_s, happened):
        verb, user = RIGHTS[method_id], self._client.user
        self._ledger.check(
            ("right", user), lambda value: value is not None and verb in value, happened, since_s,
            f"{user} may {'' if happened else 'not '}{verb}")

    def _cancelled(self, method):
        self._client.say(f"is told that {method.consumer_tag} is cancelled")
        self._consuming = None
        # A disk that fails closes the queue, which cancels its consumers.
        floor_s = self._client.floor_s
        if not self._ledger.was_ill(floor_s) and False not in self._consumes.is_there.since(floor_s):
            self._check_right(methods.BasicConsume.ID, floor_s, False)

    def refused(self, method, text):
        """The broker has closed it."""
        method_id = method.class_id << 16 | method.method_id
        since_s = min(
            [asked_s for _, _, asked_s, asked_id in self._asked if asked_id == method_id]
            + [message.published_s for message in self._unconfirmed.values()
               if method_id == methods.BasicPublish.ID], default=self._client.floor_s)
        if any(expected in text for expected in EXPECTED):
            pass
        elif method.reply_code == 403:
            # Without a method it is the consumer whose right went.
            self._check_right(method_id if method_id in RIGHTS else methods.BasicConsume.ID, since_s, False)
        elif method.reply_code == 404:
            self._ledger.check_absent(self._consumes or self._publishes, since_s)
        elif "queue limit" in text:
            self._ledger.has_no_room(since_s)
        else:
            self._ledger.find(f"{self._client.name} {text}")
        self._client.tell(self._number, methods.ChannelCloseOk())
        self.lose()
        self._client.waits()
        self._client.world.after(AGAIN_S[0], self._open_again, self._end)

    def _open_again(self, end):
        if self._client.is_open and end is self._client._end and not self._asked:
            self.open(end)

    # what it does

    def act(self, is_calm):
        """Do something."""
        if not self._is_open or self._asked:
            return
        if is_calm:
            self._drain()
        else:
            actions = OF_CONSUMERS if self._consumes is not None else OF_PUBLISHERS
            self._random.choices(list(actions), actions.values())[0](self)

    def _drain(self):
        if self._ledger.is_restored and self._consumes is not None:
            if False in self._consumes.is_there.now:
                self._declare(self._consumes)
            elif self._consuming is None:
                self._consume()
            self._ack()
        elif self._publishes is not None and self._random.random() < 0.1 and (
                self._ledger.is_withdrawn or self._ledger.to_withdraw):
            self._publish()

    def _publish(self):
        for _ in range(min(self._random.choice((1, 3, 5)), MOST_UNCONFIRMED - len(self._unconfirmed))):
            message, body = self._ledger.send(self._publishes)
            self._tag += 1
            self._unconfirmed[self._tag] = message
            self._client.say(f"publishes {message.number} to {message.queue.name}")
            self._client.waits()
            publish = methods.BasicPublish(exchange="", routing_key=message.queue.name, mandatory=True)
            self._client.send(method_frame(self._number, publish) + content_frames(
                self._number, Properties(delivery_mode=2).encode(), body, self._client.frame_max))

    def _declare_own(self):
        self._declare(self._publishes or self._consumes)

    def _declare_letters(self):
        self._declare(self._ledger.queues[LETTERS])

    def _declare_extra(self):
        self._declare(self._ledger.queues[self._random.choice(EXTRA)])

    def _declare(self, queue):
        asked = self._ledger.declares(queue)

        def declared(answer, asked_s):
            self._ledger.declared(*asked)
            self._ledger.check_length(
                queue, answer.message_count, asked_s, self._ledger.under_way(queue, asked_s))

        self._ask(methods.QueueDeclare(queue=queue.name, durable=True), methods.QueueDeclareOk, declared)

    def _consume(self):
        self._tags += 1
        self._consumes.hands.append(self._end)
        self._consuming = f"{self._client.name}-{self._tags}"
        self._client.say(f"consumes as {self._consuming}")
        self._ask(methods.BasicQos(prefetch_count=self._random.choice((1, 5, 50))), methods.BasicQosOk)
        self._ask(methods.BasicConsume(queue=self._consumes.name, consumer_tag=self._consuming),
                  methods.BasicConsumeOk)

    def _consume_if_not(self):
        if self._consuming is None:
            self._consume()

    def _get(self):
        self._consumes.hands.append(self._end)
        self._ask(methods.BasicGet(queue=self._consumes.name), (methods.BasicGetOk, methods.BasicGetEmpty))

    def _ack(self):
        if self._held:
            self._client.tell(self._number, methods.BasicAck(delivery_tag=self._held, multiple=True))
            self._held = 0

    def _give_back(self):
        if self._held:
            self._client.tell(
                self._number, methods.BasicNack(delivery_tag=self._held, multiple=True, requeue=True))
            self._held = 0

    def _stop(self):
        if self._consuming is not None:
            tag, self._consuming = self._consuming, None
            self._client.say(f"stops {tag}")
            self._ask(methods.BasicCancel(consumer_tag=tag), methods.BasicCancelOk)

    def _hang_up(self):
        self._client.leave("hangs up")


OF_PUBLISHERS = {
    GovernedChannel._publish: 10, GovernedChannel._declare_own: 2, GovernedChannel._declare_letters: 0.5,
    GovernedChannel._declare_extra: 0.5, GovernedChannel._hang_up: 0.1}
OF_CONSUMERS = {
    GovernedChannel._consume_if_not: 4, GovernedChannel._get: 1, GovernedChannel._ack: 6,
    GovernedChannel._give_back: 0.5, GovernedChannel._stop: 0.5, GovernedChannel._declare_own: 0.5,
    GovernedChannel._hang_up: 0.1}
