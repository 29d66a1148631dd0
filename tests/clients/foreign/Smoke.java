// RabbitMQ's Java client against the broker at the URL given. Leaves with 0 when every step did what it should.
import com.rabbitmq.client.*;
import java.math.BigDecimal;
import java.util.*;
import java.util.concurrent.*;

public class Smoke {
    static final int PATIENCE_S = 30;

    static void check(boolean held, String step) {
        if (!held) throw new AssertionError(step);
        System.out.println("ok " + step);
    }

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setAutomaticRecoveryEnabled(false);
        factory.setRequestedHeartbeat(5);
        try (Connection connection = factory.newConnection("smoke")) {
            confirmsAndConsuming(connection);
            propertiesAndHeaders(connection);
            returnsAndGets(connection);
            transactions(connection);
            directReplyTo(connection);
            cancelNotification(connection);
            errors(connection);
        }
    }

    static void confirmsAndConsuming(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        channel.confirmSelect();
        for (int n = 0; n < 1000; n++)
            channel.basicPublish("", queue, MessageProperties.PERSISTENT_BASIC, Integer.toString(n).getBytes());
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000);
        check(channel.messageCount(queue) == 1000, "a thousand publishes are confirmed");

        BlockingQueue<Integer> received = new LinkedBlockingQueue<>();
        channel.basicQos(100);
        channel.basicConsume(queue, false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) throws java.io.IOException {
                // Acked first: the channel is closed as soon as the last message is received.
                channel.basicAck(envelope.getDeliveryTag(), envelope.getDeliveryTag() % 10 == 0);
                received.add(Integer.parseInt(new String(body)));
            }
        });
        boolean ordered = true;
        for (int n = 0; n < 1000; n++)
            ordered &= Objects.equals(received.poll(PATIENCE_S, TimeUnit.SECONDS), n);
        check(ordered, "a thousand deliveries come in order");
        channel.close();
    }

    static void propertiesAndHeaders(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        Map<String, Object> headers = new HashMap<>();
        headers.put("int", 1);
        headers.put("long", 1L << 40);
        headers.put("double", 1.5);
        headers.put("float", 0.5f);
        headers.put("short", (short) -2);
        headers.put("byte", (byte) -3);
        headers.put("boolean", true);
        headers.put("decimal", new BigDecimal("12.34"));
        headers.put("date", new Date(1700000000000L));
        headers.put("octets", new byte[] {0, 1, (byte) 255});
        headers.put("list", Arrays.asList(1, 2L, true));
        headers.put("table", Collections.singletonMap("inner", 7));
        headers.put("null", null);
        AMQP.BasicProperties sent = new AMQP.BasicProperties.Builder().contentType("a/b").contentEncoding("utf-8").headers(headers).deliveryMode(2)
            .priority(5).correlationId("c").replyTo("r").expiration("60000").messageId("m").timestamp(new Date(1700000000000L)).type("t").userId("guest")
            .appId("a").clusterId("l").build();
        channel.basicPublish("", queue, sent, new byte[300000]);
        GetResponse found = channel.basicGet(queue, true);
        check(found.getBody().length == 300000, "a large body comes back");
        check(found.getProps().getTimestamp().equals(sent.getTimestamp()) && found.getProps().getClusterId().equals("l"), "properties come back");
        Map<String, Object> back = found.getProps().getHeaders();
        check(back.keySet().equals(headers.keySet()), "all headers come back");
        for (String name : Arrays.asList("int", "long", "double", "float", "short", "byte", "boolean", "decimal", "date", "list", "table", "null"))
            check(Objects.equals(back.get(name), headers.get(name)), "header " + name);
        check(Arrays.equals((byte[]) back.get("octets"), (byte[]) headers.get("octets")), "header octets");
        channel.close();
    }

    static void returnsAndGets(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        CompletableFuture<Integer> returned = new CompletableFuture<>();
        channel.addReturnListener((code, text, exchange, key, properties, body) -> returned.complete(code));
        channel.basicPublish("", "no.such.queue", true, null, new byte[0]);
        check(returned.get(PATIENCE_S, TimeUnit.SECONDS) == 312, "an unroutable message is returned");

        String queue = channel.queueDeclare().getQueue();
        channel.queueBind(queue, "amq.topic", queue + ".#");
        channel.basicPublish("amq.topic", queue + ".a.b", null, "x".getBytes());
        GetResponse found = channel.basicGet(queue, false);
        channel.basicNack(found.getEnvelope().getDeliveryTag(), false, true);
        check(channel.basicGet(queue, true).getEnvelope().isRedeliver(), "a nacked message is redelivered");
        check(channel.basicGet(queue, true) == null, "an empty queue gives null");
        check(channel.queuePurge(queue).getMessageCount() == 0 && channel.queueDelete(queue).getMessageCount() == 0, "purge and delete");
        channel.close();
    }

    static void transactions(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        channel.txSelect();
        channel.basicPublish("", queue, null, "lost".getBytes());
        channel.txRollback();
        channel.basicPublish("", queue, null, "kept".getBytes());
        channel.txCommit();
        check(new String(channel.basicGet(queue, true).getBody()).equals("kept"), "a transaction publishes what was not rolled back");
        channel.close();
    }

    static void directReplyTo(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        RpcClient client = new RpcClient(channel, "", queue, PATIENCE_S * 1000);
        RpcServer server = new RpcServer(connection.createChannel(), queue) {
            @Override
            public byte[] handleCall(byte[] request, AMQP.BasicProperties properties) {
                return new String(request).toUpperCase().getBytes();
            }
        };
        Thread thread = new Thread(() -> {
            try {
                server.mainloop();
            } catch (Exception ended) {
                // closed below
            }
        });
        thread.setDaemon(true);
        thread.start();
        check(client.stringCall("ping").equals("PING"), "a request over direct reply-to is answered");
        client.close();
    }

    static void cancelNotification(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        String queue = channel.queueDeclare().getQueue();
        CompletableFuture<String> cancelled = new CompletableFuture<>();
        channel.basicConsume(queue, true, "mine", new DefaultConsumer(channel) {
            @Override
            public void handleCancel(String tag) {
                cancelled.complete(tag);
            }
        });
        connection.createChannel().queueDelete(queue);
        check(cancelled.get(PATIENCE_S, TimeUnit.SECONDS).equals("mine"), "a consumer hears of its queue being deleted");
        channel.close();
    }

    static void errors(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        try {
            channel.queueDeclarePassive("no.such.queue");
            throw new AssertionError("a missing queue was found");
        } catch (java.io.IOException error) {
            AMQP.Channel.Close reason = (AMQP.Channel.Close) ((ShutdownSignalException) error.getCause()).getReason();
            check(reason.getReplyCode() == 404, "a missing queue is 404");
        }
        check(!channel.isOpen() && connection.isOpen(), "the connection survives it");
    }
}
