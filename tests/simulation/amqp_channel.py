"""AMQP channel: what a client does on one channel, as a table of actions with weights, and what it reports to
the ledgers.

Requests are answered in their order, and each answer shows that the broker has seen what was sent before its
request: acks and returns of messages count from there.
"""
import re
from collections import deque

from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.content.properties import Properties
from tests.simulation.amqp_clients import awaited
from tests.simulation.book import Held
from tests.simulation.queue_ledger import GROUPS

MOST_UNCONFIRMED = 50
DELAYED = "delayed"  # the exchange
DELAYS_MS = (1, 50, 2000)
EXPIRATIONS_MS = (0, 20, 1000)
SIZES = (400, 400, 900, 6000)  # of bodies, where a queue has room for 5000 octets
NOWHERE = "nowhere"
GOT = methods.BasicGetOk, methods.BasicGetEmpty
# Of headers that say something about a delivery: x-acquired-count, x-death, x-delivery-count,
# x-stream-offset.
MARKS = re.compile(b"x-acq|x-de|x-stream")


class Channel:
    """``publishes`` and ``consumes``: QueueLedgers, or None. ``is_tx``: in transactions, and otherwise with
    confirms. ``actions``: names of ACTIONS that it may do. ``has_consumer``: or it gets one by one.
    """

    def __init__(self, client, number, publishes, consumes, is_tx, has_consumer, actions):
        self._client = client
        self._book = client.book
        self._random = client.random
        self._number = number
        self._publishes, self._consumes = publishes, consumes
        self._is_tx, self._has_consumer = is_tx, has_consumer
        self._actions = {name: ACTIONS[name] for name in actions}
        self._end = self._hand = None
        self._asked = deque()  # (the answer's kinds, what to call with it)
        self._consumers = 0
        self._has_got = False
        self._newest = 0  # delivery tag of what came
        self.lose()

    def lose(self):
        """Its connection is lost."""
        self.shut()
        self._asked.clear()
        self._unconfirmed = {}  # delivery tag -> Message

    def shut(self):
        """It does nothing more before it is opened anew. What was asked may still be answered."""
        if self._hand is not None:
            self._hand.leave()
        self._is_open = False
        self._is_busy = False  # with basic.recover: what comes meanwhile has gone back
        self._unseen = []  # what to call when the next answer has come
        self._tag = 0
        self._uncommitted = []  # Messages
        self._cancelled = set()
        self._consuming = {}  # tag of a consumer -> prefetch, until it has been cancelled
        self._prefetch = 0

    def awaits(self):
        """As a client's."""
        return awaited(self._asked, self._unconfirmed)

    def is_idle(self):
        """Whether it waits for nothing."""
        return self._is_open and not self._asked and not self._unconfirmed

    # what it asks

    def open(self, end):
        """There is a connection. Everything that it needs is asked for at once."""
        self._end = end
        self._source = object()
        self._ask(methods.ChannelOpen(), methods.ChannelOpenOk, self._begins)
        self._declare([self._publishes, self._consumes], set())
        if self._is_tx:
            self._ask(methods.TxSelect(), methods.TxSelectOk)
        elif self._publishes is not None:
            self._ask(methods.ConfirmSelect(), methods.ConfirmSelectOk)
        if self._consumes is not None:
            self._ask(methods.ChannelFlow(active=True), methods.ChannelFlowOk, self._begin_to_consume)
        else:
            self._ask(methods.ChannelFlow(active=True), methods.ChannelFlowOk, self._opened)

    def _begins(self, _method):
        self._newest = 0

    def _declare(self, ledgers, declared):
        """These, and all that messages may go to from there."""
        for ledger in ledgers:
            if ledger is None or ledger in declared:
                continue
            declared.add(ledger)
            self._declare_queue(ledger)
            if "delays" in ledger.traits:
                self._ask(methods.ExchangeDeclare(
                    exchange=DELAYED, type="x-delayed-message", durable=True,
                    arguments={"x-delayed-type": "direct"}), methods.ExchangeDeclareOk)
                self._ask(methods.QueueBind(
                    queue=ledger.name, exchange=DELAYED, routing_key=ledger.name), methods.QueueBindOk)
            self._declare([ledger.dies_to, ledger.copies_to], declared)

    def _declare_queue(self, ledger):
        self._ask(methods.QueueDeclare(queue=ledger.name, durable=True, arguments=ledger.arguments),
                  methods.QueueDeclareOk, lambda answer: ledger.check_length(answer.message_count))

    def _begin_to_consume(self, method):
        self._hand = self._consumes.consumer_connects(self._end)
        self._consumes_since_s = self._client.world.now_s
        if self._has_consumer:
            self._consume()
        self._opened(method)

    def _opened(self, _method):
        self._is_open = True

    def _ask(self, method, answers, then=lambda method: None):
        """Send a request; ``then(answer)`` is called with what answers it."""
        unseen, self._unseen = self._unseen, []

        def seen(*answer):
            for see in unseen:
                see()
            then(*answer)

        self._asked.append((answers, seen))
        self._client.waits()
        self._tell(method)

    def _tell(self, method):
        self._client.tell(self._number, method)

    def _say(self, what):
        self._client.say(what)

    # what it is told

    def take(self, method, properties=b"", body=b""):
        """Something has come for it."""
        kind = type(method)
        if kind in self.HANDLERS:
            self.HANDLERS[kind](self, method, properties, body)
        elif not self._asked or not isinstance(method, self._asked[0][0]):
            if not self._client.is_closing:
                self._client.world.find(f"{self._client.name} was told {method}, and has asked {self._asked}")
        else:
            _, then = self._asked.popleft()
            then(*((method, properties, body) if kind is methods.BasicGetOk else (method,)))
        self._client.heard()

    def _confirmed(self, method, _properties, _body):
        messages = self._take_tags(method)
        self._say(f"is confirmed {[message.number for message in messages]}")
        for message in messages:
            self._accepted(message)

    def _accepted(self, message):
        if not message.queues and not message.is_returned:
            self._client.world.find(f"{message.number} was accepted, and not returned before that")
        self._book.accept(message)

    def _refused(self, method, _properties, _body):
        self._say(f"is refused {[message.number for message in self._take_tags(method)]}")

    def _take_tags(self, method):
        tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag] if method.multiple else [
            method.delivery_tag]
        return [self._unconfirmed.pop(tag) for tag in tags]

    def _returned(self, method, _properties, body):
        message = self._book.message_of(body)
        self._say(f"has {message and message.number} back")
        if message is not None:
            message.is_returned = True
            if message.queues:
                self._client.world.find(f"{message.number} came back, and has a queue")

    def _delivered(self, method, properties, body):
        if not self._is_open or self._is_busy:
            return  # it has gone back
        if method.consumer_tag in self._consuming:
            self._take_message(method, properties, body)
            prefetch = self._consuming[method.consumer_tag]
            if prefetch and self._hand.count(method.consumer_tag) > prefetch:
                self._consumes.find(f"{self._client.name} has more than {prefetch} messages in hand")
        else:
            self._consumes.find(f"{self._client.name} has a message behind cancel-ok")

    def _take_message(self, method, properties, body):
        """Returns the Copy, or None, which is a finding."""
        self._consumes.exercised["tags in order"] += bool(self._consuming) and isinstance(
            method, methods.BasicGetOk)
        if method.delivery_tag < self._newest:  # docs/promises.md: "Delivery tags come in their order"
            self._consumes.find(f"{method.delivery_tag} came behind {self._newest}, which is a later tag")
        self._newest = method.delivery_tag
        message = self._book.message_of(body)
        if message is None:
            return None
        headers = Properties.decode(properties).headers if MARKS.search(properties) else None
        held = Held(method.delivery_tag, getattr(method, "consumer_tag", None), None)
        copy = self._hand.take(message, held, method.redelivered, headers)
        self._say(f"takes {copy}{' again' if method.redelivered else ''} of {self._consumes.name}")
        return copy

    HANDLERS = {
        methods.BasicAck: _confirmed, methods.BasicNack: _refused, methods.BasicReturn: _returned,
        methods.BasicDeliver: _delivered,
    }

    # what it does

    def act(self, is_calm):
        """Do something."""
        if not self._is_open or self._is_busy:
            return
        if is_calm:
            self._drain()
        else:
            weights = [weight for weight, _ in self._actions.values()]
            (_, action), = self._random.choices(list(self._actions.values()), weights)
            getattr(self, action.__name__)()

    def _drain(self):
        """Settle everything, and ask for nothing new."""
        if self._consumes is not None:
            if self._consuming and self._client.reopened_at_s(self._consumes.name) > self._consumes_since_s:
                self._close_connection()  # its consumers ended with the queue, of which only some are told
                return
            if self._has_consumer and not self._consuming and not self._asked:
                self._consume()
            elif self._hand.wants_again() and not self._asked:
                self._cancel()
            elif not self._has_consumer and not self._asked:
                for _ in range(20 if self._has_got else 1):
                    self._get()
            self._ack_multiple(whole=True)
        if self._is_tx and (self._uncommitted or self._hand is not None and self._hand.pending):
            self._commit()
        if self._unseen:
            self._qos()

    def _publish(self):
        room = MOST_UNCONFIRMED - len(self._unconfirmed) - len(self._uncommitted)
        for _ in range(min(self._random.choice((1, 1, 5, 20)), room)):
            self._publish_one()

    def _publish_one(self):
        ledger, what, headers, exchange = self._publishes, {}, {}, ""
        queues = [ledger]
        properties = Properties(delivery_mode=2)
        if "priority" in ledger.traits:
            properties.priority = what["priority"] = self._random.randrange(6)
        if "expiration" in ledger.traits and self._random.random() < 0.3:
            expiration_ms = self._random.choice(EXPIRATIONS_MS)
            properties.expiration, what["ttl_s"] = str(expiration_ms), expiration_ms / 1000
        if "sized" in ledger.traits:
            what["size"] = self._random.choice(SIZES)
        if "transient" in ledger.traits and self._random.random() < 0.5:
            properties.delivery_mode, what["is_transient"] = 1, True
        if "grouped" in ledger.traits and self._random.random() < 0.8:
            headers["group"] = what["group"] = self._random.randrange(GROUPS)
        if "delays" in ledger.traits and self._random.random() < 0.5:
            headers["x-delay"], exchange = self._random.choice(DELAYS_MS), DELAYED
            what["delay_s"] = headers["x-delay"] / 1000
        elif ledger.copies_to is not None:
            headers["CC"] = [ledger.copies_to.name]
            queues.append(ledger.copies_to)
        properties.headers = headers or None
        publish = methods.BasicPublish(
            exchange=exchange, routing_key=ledger.name, mandatory=self._random.random() < 0.1)
        self._send_message(queues, publish, properties, what)

    def _publish_nowhere(self):
        if self._publishes is not None:
            self._send_message(
                [], methods.BasicPublish(exchange="", routing_key=NOWHERE, mandatory=True), Properties(), {})

    def _send_message(self, queues, method, properties, what):
        message = self._book.publish(self._source, queues, is_open=self._is_tx, **what)
        self._say(f"publishes {message.number} to {method.routing_key}")
        if self._is_tx:
            self._uncommitted.append(message)
        else:
            self._tag += 1
            self._unconfirmed[self._tag] = message
            self._client.waits()
        self._client.send(method_frame(self._number, method) + content_frames(
            self._number, properties.encode(), message.body, self._client.frame_max))

    def _commit(self):
        messages, self._uncommitted = self._uncommitted, []
        settled = self._hand.commit() if self._hand is not None else lambda: None
        for message in messages:
            message.is_open = False

        def committed(_method):
            self._say(f"has committed {[message.number for message in messages]}")
            settled()
            for message in messages:
                self._accepted(message)

        self._say(f"commits {[message.number for message in messages]}")
        self._ask(methods.TxCommit(), methods.TxCommitOk, committed)

    def _roll_back(self):
        self._say(f"rolls back {[message.number for message in self._uncommitted]}")
        self._uncommitted = []
        if self._hand is not None:
            self._hand.roll_back()
        self._ask(methods.TxRollback(), methods.TxRollbackOk)

    def _in_hand(self):
        """Copies, the oldest delivery first."""
        held = self._hand.held
        return sorted(held, key=lambda copy: held[copy].delivery_tag)

    def _ack(self):
        if copies := self._in_hand():
            self._settle([self._random.choice(copies)], methods.BasicAck)

    def _ack_multiple(self, whole=False):
        if copies := self._in_hand():
            count = len(copies) if whole else 1 + self._random.randrange(len(copies))
            self._settle(copies[:count], methods.BasicAck, multiple=True)

    def _reject(self):
        if copies := self._in_hand():
            self._settle([self._random.choice(copies)], methods.BasicReject, requeue=False)

    def _settle(self, copies, kind, **how):
        """Ack, or reject for good."""
        tag = self._hand.held[copies[-1]].delivery_tag
        self._say(f"{kind.__name__[5:].lower()}s {copies} of {self._consumes.name}")
        is_reject = kind is methods.BasicReject
        if self._is_tx:
            self._hand.settle_later(copies, is_reject)
        else:
            self._unseen.append((self._hand.reject if is_reject else self._hand.ack)(copies))
        self._tell(kind(delivery_tag=tag, **how))

    def _give_back(self):
        copies = self._in_hand()[:self._random.choice((1, 3))]
        if copies and not self._is_tx:
            tag = self._hand.held[copies[-1]].delivery_tag
            self._say(f"gives back {copies} of {self._consumes.name}")
            self._unseen.append(self._hand.give_back(copies))
            self._tell(methods.BasicNack(delivery_tag=tag, multiple=True, requeue=True))

    def _recover(self):
        if not self._is_tx:
            self._say(f"recovers what it has of {self._consumes.name}")
            self._is_busy = self._hand.is_recovering = True
            self._consumes.connections += 1  # what is on its way goes back, too, as with a connection

            def recovered(_method):
                self._is_busy = self._hand.is_recovering = False
                if copies := self._in_hand():
                    self._hand.give_back(copies)()

            self._ask(methods.BasicRecover(requeue=True), methods.BasicRecoverOk, recovered)

    def _qos(self):
        self._prefetch = self._random.choice(self._consumes.prefetches)
        self._ask(methods.BasicQos(prefetch_count=self._prefetch), methods.BasicQosOk)

    def _consume(self):
        self._qos()
        self._consumers += 1
        tag, arguments = self._hand.consumes(f"{self._client.name}-{self._number}-{self._consumers}")
        self._consuming[tag] = self._prefetch
        self._say(f"consumes as {tag}, at most {self._prefetch} {arguments or ''}")
        self._ask(methods.BasicConsume(
            queue=self._consumes.name, consumer_tag=tag, arguments=arguments), methods.BasicConsumeOk)

    def _cancel(self):
        """Stop, and consume again."""
        for tag in set(self._consuming) - self._cancelled:
            self._cancelled.add(tag)
            self._say(f"cancels {tag}")

            def cancelled(_method, tag=tag):
                self._cancelled.discard(tag)
                if self._consuming.pop(tag, None) is not None:
                    self._consume()

            self._ask(methods.BasicCancel(consumer_tag=tag), methods.BasicCancelOk, cancelled)

    def _get(self):
        asked_s, connections = self._client.world.now_s, self._consumes.connections
        is_alone = self._hand.is_alone() and not self._hand.held

        def got(method, *content):
            self._has_got = bool(content)
            if content and self._is_open and not self._is_busy:
                copy = self._take_message(method, *content)
                self._consumes.check_length(method.message_count)
                is_still_alone = is_alone and connections == self._consumes.connections
                if is_still_alone and copy is not None and "priority" in self._consumes.traits:
                    self._consumes.check_priority(self._book.messages[copy.number], asked_s)

        self._ask(methods.BasicGet(queue=self._consumes.name), GOT, got)

    def _close(self):
        """Close the channel, and open it again."""
        self._say(f"closes channel {self._number}")
        hand, end = self._hand, self._end
        self.shut()

        def closed(_method):
            self.check_confirmed()
            if hand is not None:
                hand.close()
            self.open(end)

        self._ask(methods.ChannelClose(reply_code=200, reply_text=""), methods.ChannelCloseOk, closed)

    def check_confirmed(self):
        """Its end was answered: behind all that it was to hear."""
        if self._unconfirmed:
            left = len(self._unconfirmed)
            self._client.world.find(f"{self._client.name} has close-ok before {left} confirms")

    def _close_connection(self):
        self._client.close()


# The weight of each, and what it does. Which of them a channel may do, its seed says.
ACTIONS = {
    "publish": (10, Channel._publish), "publish_nowhere": (1, Channel._publish_nowhere),
    "commit": (4, Channel._commit), "roll_back": (1, Channel._roll_back),
    "ack": (6, Channel._ack), "ack_multiple": (6, Channel._ack_multiple),
    "reject": (2, Channel._reject), "give_back": (2, Channel._give_back), "recover": (1, Channel._recover),
    "qos": (4, Channel._qos), "cancel": (1, Channel._cancel), "get": (4, Channel._get),
    "close_channel": (1, Channel._close), "close_connection": (0.3, Channel._close_connection),
}
OF_PUBLISHERS = ("publish_nowhere", "close_channel", "close_connection")
OF_READERS = ("ack", "qos", "cancel", "close_channel", "close_connection")
OF_CONSUMERS = (
    "ack", "reject", "give_back", "recover", "qos", "cancel", "close_channel", "close_connection")
