"""An AMQP client that sets, replaces and deletes schedules of a delayed exchange, and what it is promised:
each is sent once for each of its times and not before, until it is deleted.
"""
from collections import defaultdict

from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.content.properties import Properties
from tests.simulation.amqp_owners import OwnerClient, PatientChannel
from tests.simulation.clock import CLOCK, START_S
from tests.simulation.ledger import ACK_FLUSH_S, Ledger

SHARE = 0.1
EXCHANGE = QUEUE = "schedules"
NAMES = ("a", "b")
EVERY_MS = 1000
RULES = ("all", "all", "once", "none")
SIZE = 100
TIMES = ({"every": EVERY_MS}, {"cron": "* * * * * *"})
SLACK_MS = 10  # what looks at the clock cost between two readings of it


def unix_ms(now_s):
    """Wall time of a moment, where nobody has set the clock."""
    return (START_S + now_s) * 1000


class Order:
    """What was asked for under a name: a schedule, or the deletion of the one before."""

    def __init__(self, number, name, fields, now_s):
        self.number = number
        self.name = name
        self.fields = fields
        self.asked_s = now_s
        self.over_s = None  # when a later order of the name was confirmed
        self.may_come_back = False  # the disk may not know yet that it was deleted
        self.accepted_s = None
        self.times = defaultdict(int)  # in Unix ms -> how often it came

    @property
    def is_deletion(self):
        """Whether it ends the schedule."""
        return self.fields is None


class ScheduleLedger(Ledger):
    """Of the schedules of one exchange."""

    def __init__(self, world, name):
        super().__init__(world, name)
        self.orders = []
        self._live = dict.fromkeys(NAMES)  # name -> the Order that is surely in force
        self._deleted = set()  # names, in the calm
        self._calm_s = None
        self._shaken_s = 0.0  # the last moment at which a message may have been sent, and this forgotten
        self._is_ill = self._is_full = self._is_checked = False

    def order(self, name, fields):
        """(Order, body) that a client sends now."""
        number, body = self.publish(SIZE)
        self.orders.append(Order(number, name, fields, self.world.now_s))
        self._live[name] = None
        return self.orders[-1], b"" if fields is None else body

    def accept(self, order):
        """It was confirmed."""
        order.accepted_s = self.world.now_s
        self.exercised["schedules deleted" if order.is_deletion else "schedules set"] += 1
        before = [one for one in self.orders[:order.number] if one.name == order.name]
        for one in before:
            if one.over_s is None:
                one.over_s = self.world.now_s
            one.may_come_back = order.is_deletion
        if order.is_deletion:
            if self._calm_s is not None:
                self._deleted.add(order.name)
            self.world.after(ACK_FLUSH_S, self._flushed, before)
        elif order is [one for one in self.orders if one.name == order.name][-1]:
            self._live[order.name] = order

    def _flushed(self, orders):
        if not (self._is_ill or self._is_full):
            for one in orders:
                one.may_come_back = False

    def deliver(self, number, name, time_ms, redelivered):
        """It came."""
        order = self.orders[number]
        what = f"{number} of {name!r} for {time_ms}"
        if order.is_deletion or order.name != name:
            self.find(f"{what} came, and was never asked for")
        is_new = not order.times[time_ms]
        order.times[time_ms] += not redelivered or is_new
        if CLOCK.jumps:
            return
        now_ms = unix_ms(self.world.now_s)
        self.exercised["times of schedules"] += is_new
        self.exercised["times while the broker was away"] += time_ms <= unix_ms(self._shaken_s)
        if now_ms + SLACK_MS < time_ms:
            self.find(f"{what} came before its time, at {now_ms:.0f}")
        if time_ms < unix_ms(order.asked_s):
            self.find(f"{what} came, a time before it was set")
        is_over = order.over_s is not None and time_ms > unix_ms(order.over_s) + SLACK_MS
        if is_over and not order.may_come_back:
            self.find(f"{what} came, and was deleted or replaced before that")
        if order.times[time_ms] > 1 and not (
                redelivered or self._is_shaken() or time_ms <= unix_ms(self._shaken_s) + EVERY_MS):
            self.find(f"{what} came twice")

    def _is_shaken(self):
        return self._is_ill or self._is_full

    # the disk and the process

    def process_ended(self):
        self._shaken_s = self.world.now_s
        self._is_ill = False

    def disk_is_ill(self, fails):
        self._is_ill = True

    def disk_is_full(self, is_full):
        self._shaken_s, self._is_full = self.world.now_s, is_full

    # the end

    def to_delete(self):
        """Names that the client may delete in the calm: their schedules have shown that they go on."""
        if self._calm_s is None:
            self._calm_s = self.world.now_s
        now_ms = unix_ms(self._calm_s + CLOCK.jump_s)
        return [
            name for name, live in self._live.items()
            if name not in self._deleted and (live is None or max(live.times, default=0) > now_ms)]

    def is_deleted(self):
        """Whether nothing is sent any more."""
        return len(self._deleted) == len(NAMES)

    def is_complete(self):
        return self._is_checked

    def check_complete(self):
        for name, live in self._live.items():
            if name not in self._deleted:
                self.find(f"{live and live.number} of {name!r} is in force, and sends nothing any more")

    def check_gaps(self):
        """Everything has come. Nothing was left out, of those that send each time."""
        self._is_checked = True
        for order in self.orders:
            times = sorted(order.times)
            if not times or order.is_deletion or order.fields["missed"] != "all" or CLOCK.jumps:
                continue
            self.exercised["schedules without a gap"] += len(times) > 1
            if any(later - earlier != EVERY_MS for earlier, later in zip(times, times[1:])):
                self.find(f"{order.number} of {order.name!r} has left out a time of {times}")
            if order.accepted_s is not None and times[0] > unix_ms(order.accepted_s) + EVERY_MS + SLACK_MS:
                self.find(f"{order.number} of {order.name!r} began at {times[0]}")


class SchedulingChannel(PatientChannel):
    """Sets schedules, and takes what they send."""

    def __init__(self, client, number, ledger, actions):
        self._ledger = ledger
        super().__init__(client, number, None, None, False, False, actions)
        self._actions |= {
            "rest": (100, SchedulingChannel._rest), "set": (1.5, SchedulingChannel._set),
            "delete": (0.3, SchedulingChannel._delete)}

    def shut(self):
        super().shut()
        self._is_shut = True
        self._consumes_since_s = None  # None: it has no consumer
        self._pending = set()  # names that are being deleted

    def _begins(self, _method):
        self._is_shut = False

    def _declare(self, ledgers, declared):
        self._ask(methods.ExchangeDeclare(
            exchange=EXCHANGE, type="x-delayed-message", durable=True,
            arguments={"x-delayed-type": "fanout"}), methods.ExchangeDeclareOk)
        self._ask(methods.QueueDeclare(queue=QUEUE, durable=True), methods.QueueDeclareOk)
        self._ask(methods.QueueBind(queue=QUEUE, exchange=EXCHANGE), methods.QueueBindOk)
        self._ask(methods.ConfirmSelect(), methods.ConfirmSelectOk)
        self._ask(methods.BasicConsume(queue=QUEUE, consumer_tag="schedules"), methods.BasicConsumeOk)

    def _opened(self, _method):
        super()._opened(_method)
        self._consumes_since_s = self._client.world.now_s
        if not self._ledger.orders:
            for name in NAMES:
                self._set(name)

    # what it does

    def _rest(self):
        """Let time pass, or no schedule would live to see its second."""

    def _set(self, name=None):
        fields = {**self._random.choice(TIMES), "missed": self._random.choice(RULES)}
        self._order(name or self._random.choice(NAMES), fields)

    def _delete(self):
        self._order(self._random.choice(NAMES), None)

    def _order(self, name, fields):
        order, body = self._ledger.order(name, fields)
        self._say(f"orders {order.number}: {name} {fields}")
        self._tag += 1
        self._unconfirmed[self._tag] = order
        self._client.waits()
        properties = Properties(delivery_mode=2, headers={"x-schedule": {"name": name, **(fields or {})}})
        publish = method_frame(self._number, methods.BasicPublish(exchange=EXCHANGE))
        self._client.send(publish + content_frames(
            self._number, properties.encode(), body, self._client.frame_max))

    def _drain(self):
        if self._consumes_since_s is None or self._client.reopened_at_s(QUEUE) > self._consumes_since_s:
            self._close_connection()
            return
        for name in self._ledger.to_delete():
            if name not in self._pending:
                self._pending.add(name)
                self._order(name, None)
        if self._ledger.is_deleted() and not (self._ledger.is_complete() or self._asked):
            self._ask(methods.QueueDeclare(queue=QUEUE, passive=True), methods.QueueDeclareOk, self._look)

    def _look(self, method):
        if not method.message_count:
            self._ledger.check_gaps()

    # what it is told

    def _accepted(self, message):
        self._ledger.accept(message)

    def _refused(self, method, properties, body):
        super()._refused(method, properties, body)
        self._pending.clear()

    def _delivered(self, method, properties, body):
        if self._is_shut:
            return  # it has gone back
        number = self._ledger.number_of(body)
        headers = Properties.decode(properties).headers
        name, time_ms = headers["x-schedule-name"], headers["x-schedule-time"]
        self._say(f"takes {number} of {name} for {time_ms}{' again' if method.redelivered else ''}")
        if number is not None:
            self._ledger.deliver(number, name, time_ms, method.redelivered)
        self._tell(methods.BasicAck(delivery_tag=method.delivery_tag))

    def _cancelled_by_broker(self, _method, _properties, _body):
        """A fault of the disk has closed the queue; it begins anew in the calm."""
        self._say("has no consumer any more")
        self._consumes_since_s = None

    HANDLERS = PatientChannel.HANDLERS | {
        methods.BasicAck: PatientChannel._confirmed, methods.BasicNack: _refused,
        methods.BasicDeliver: _delivered, methods.BasicCancel: _cancelled_by_broker}


def scheduling_clients(world, network, book, left):
    """(clients, ledgers) of a seed that has them, or none."""
    random = world.random("repeats")
    if not left(["schedules"], random.random() < SHARE):
        return [], []
    ledger = ScheduleLedger(world, "schedules")
    actions = random.sample(("close_channel", "close_connection"), random.randrange(3))
    return [OwnerClient(world, network, "scheduling", book, [(SchedulingChannel, ledger, actions)])], [ledger]
