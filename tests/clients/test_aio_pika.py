"""aio-pika: the asyncio client, with its robust connections and its patterns.

One event loop per test, each under a limit of time.
"""
import asyncio

import aio_pika
import aiormq
import pytest
from aio_pika import exceptions, patterns

from tests.support.waiting import in_time, wait_until_async

PATIENCE_S = in_time(100)


def run(coroutine):
    """Run a test's coroutine under the limit of time."""
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


async def read(iterator, number):
    """The next bodies of a queue iterator, acked, as numbers."""
    bodies = []
    async for message in iterator:
        async with message.process():
            bodies.append(int(message.body))
        if len(bodies) == number:
            return bodies


def test_message_and_properties_come_back(broker_url):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            properties = {
                "content_type": "text/plain", "content_encoding": "utf-8",
                "headers": {"a": 1, "b": ["x", {"c": None}]}, "delivery_mode": 2,
                "priority": 3, "correlation_id": "c", "reply_to": "r", "expiration": 60, "message_id": "m",
                "type": "t", "user_id": "guest",
                "app_id": "a"}
            await channel.default_exchange.publish(aio_pika.Message(b"body", **properties), queue.name)
            message = await queue.get(timeout=in_time(30))
            await message.ack()
            assert message.body == b"body"
            assert {name: getattr(message, name) for name in properties} == properties
    run(scenario())


def test_publishes_are_confirmed_and_consumed_in_order(broker_url):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=10)
            queue = await channel.declare_queue(exclusive=True)
            for n in range(100):
                assert await channel.default_exchange.publish(
                    aio_pika.Message(str(n).encode(), delivery_mode=2), queue.name
                )
            async with queue.iterator() as iterator:
                assert await read(iterator, 100) == list(range(100))
    run(scenario())


def test_hundred_confirmed_publishes_at_once(broker_url):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            publishes = (
                channel.default_exchange.publish(aio_pika.Message(b"x", delivery_mode=2), queue.name)
                for _ in range(100)
            )
            await asyncio.gather(*publishes)
            assert (
                await channel.declare_queue(queue.name, passive=True)
            ).declaration_result.message_count == 100
    run(scenario())


def test_unroutable_mandatory_publish_raises(broker_url):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel(on_return_raises=True)
            with pytest.raises(exceptions.DeliveryError):
                await channel.default_exchange.publish(aio_pika.Message(b"x"), "no.such.queue")
    run(scenario())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda channel: channel.declare_queue("no.such.queue", passive=True),
            exceptions.ChannelNotFoundEntity,
        ),
        (
            lambda channel: channel.declare_exchange("amq.topic", "direct", durable=True),
            exceptions.ChannelPreconditionFailed,
        ),
        (lambda channel: channel.declare_queue("amq.mine"), aiormq.exceptions.ChannelAccessRefused),
    ],
    ids=["404", "406", "403"],
)
def test_channel_errors_have_their_classes(broker_url, call, error):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            with pytest.raises(error):
                await call(await connection.channel())
            assert await (await connection.channel()).declare_queue(exclusive=True)
    run(scenario())


def test_wrong_password_raises_authentication_error(broker_url):
    with pytest.raises(exceptions.ProbableAuthenticationError):
        run(aio_pika.connect(broker_url.replace("guest:guest", "guest:wrong")))


def test_get_of_an_empty_queue_raises_or_returns_none(broker_url):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            queue = await (await connection.channel()).declare_queue(exclusive=True)
            assert await queue.get(fail=False) is None
            with pytest.raises(exceptions.QueueEmpty):
                await queue.get()
    run(scenario())


@pytest.mark.parametrize("requeue", [True, False])
def test_process_of_a_message_that_fails_settles_it(broker_url, requeue):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)
            with pytest.raises(ZeroDivisionError):
                async with (await queue.get(timeout=in_time(30))).process(requeue=requeue):
                    raise ZeroDivisionError
            again = await queue.get(no_ack=True, fail=False)
            assert (again is not None and again.redelivered) == requeue
    run(scenario())


def test_rpc_over_direct_reply_to(broker_url):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            server = await channel.declare_queue(exclusive=True)
            replies = await channel.get_queue("amq.rabbitmq.reply-to", ensure=False)
            answer = asyncio.get_running_loop().create_future()

            async def on_answer(message):
                answer.set_result(message)

            async def serve(message):
                reply = aio_pika.Message(message.body.upper(), correlation_id=message.correlation_id)
                await channel.default_exchange.publish(reply, message.reply_to)
            await replies.consume(on_answer, no_ack=True)
            await server.consume(serve, no_ack=True)
            await channel.default_exchange.publish(
                aio_pika.Message(b"ping", reply_to="amq.rabbitmq.reply-to", correlation_id="1"), server.name)
            message = await answer
            assert (message.body, message.correlation_id) == (b"PING", "1")
    run(scenario())


def test_rpc_pattern(broker_url, name):
    """aio_pika.patterns.RPC: results, exceptions and calls of what nobody serves."""
    async def double(*, value):
        return value * 2

    async def fail():
        raise ValueError("no")

    async def scenario():
        async with await aio_pika.connect_robust(broker_url) as connection:
            rpc = await patterns.RPC.create(await connection.channel())
            await rpc.register(f"{name}.double", double, auto_delete=True)
            await rpc.register(f"{name}.fail", fail, auto_delete=True)
            assert await asyncio.gather(*(rpc.call(f"{name}.double", {"value": n}) for n in range(20))) == [
                n * 2 for n in range(20)
            ]
            with pytest.raises(ValueError):
                await rpc.call(f"{name}.fail")
            with pytest.raises(exceptions.MessageProcessError):
                await rpc.call(f"{name}.nobody")
            await rpc.close()
    run(scenario())


def test_master_and_worker_pattern(broker_url, name):
    async def scenario():
        done = []

        async def work(*, task_id):
            done.append(task_id)
        async with await aio_pika.connect_robust(broker_url) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=2)
            master = patterns.Master(channel)
            worker = await master.create_worker(name, work, auto_delete=True)
            for n in range(20):
                await master.create_task(name, {"task_id": n})

            async def complete():
                return len(done) == 20
            await wait_until_async(complete)
            await worker.close()
        assert sorted(done) == list(range(20))
    run(scenario())


def test_transaction(broker_url):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(exclusive=True)
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"kept"), queue.name)
            with pytest.raises(ZeroDivisionError):
                async with channel.transaction():
                    await channel.default_exchange.publish(aio_pika.Message(b"lost"), queue.name)
                    raise ZeroDivisionError
            assert (await queue.get(no_ack=True)).body == b"kept"
            assert await queue.get(no_ack=True, fail=False) is None
    run(scenario())


def test_exchanges_and_bindings(broker_url, name):
    async def scenario():
        async with await aio_pika.connect(broker_url) as connection:
            channel = await connection.channel()
            source = await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, auto_delete=True)
            target = await channel.declare_exchange(
                f"{name}.2", aio_pika.ExchangeType.HEADERS, auto_delete=True
            )
            queue = await channel.declare_queue(exclusive=True)
            await target.bind(source, "a.*")
            await queue.bind(target, arguments={"x-match": "all", "k": "v"})
            await source.publish(aio_pika.Message(b"x", headers={"k": "v"}), "a.b")
            assert (await queue.get(no_ack=True, timeout=in_time(30))).body == b"x"
            await queue.unbind(target, arguments={"x-match": "all", "k": "v"})
            await target.unbind(source, "a.*")
    run(scenario())


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_robust_connection_survives_a_restart(own_broker, how):
    """Connection, channel, queue, binding and consumer are made again by aio-pika; confirmed messages arrive,
    each at least once and in order.
    """
    async def scenario():
        received = []

        async def on_message(message):
            received.append(int(message.body))
            await message.ack()
        async with await aio_pika.connect_robust(own_broker.amqp_url, reconnect_interval=0.05) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange("jobs", durable=True)
            queue = await channel.declare_queue("jobs", durable=True)
            await queue.bind(exchange, "key")
            await queue.consume(on_message)
            for n in range(10):
                await exchange.publish(aio_pika.Message(str(n).encode(), delivery_mode=2), "key")
            await asyncio.to_thread(
                own_broker.restart if how == "stopped" else lambda: (own_broker.kill(), own_broker.start())
            )
            await connection.ready()
            for n in range(10, 20):
                await publish_again_and_again(exchange, n)

            async def complete():
                return set(received) == set(range(20))
            await wait_until_async(complete)
        assert [n for index, n in enumerate(received) if n not in received[:index]] == list(range(20))

    async def publish_again_and_again(exchange, n):
        """A publish may still meet the old connection."""
        async def published():
            try:
                await asyncio.wait_for(
                    exchange.publish(aio_pika.Message(str(n).encode(), delivery_mode=2), "key"), in_time(20)
                )
            except (exceptions.AMQPError, asyncio.TimeoutError, RuntimeError):
                return False
            return True

        await wait_until_async(published)

    run(scenario())
