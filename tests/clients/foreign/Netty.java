// RabbitMQ's Java client on Netty against the broker at the URL given, with heartbeats of so many seconds: it
// closes when nothing has come for one interval. "quiet" is printed after two intervals without a message; then
// the broker is started anew, and the client recovers. Leaves with 0 when every step did what it should.
import com.rabbitmq.client.*;
import java.util.concurrent.*;

public class Netty {
    static final int PATIENCE_S = 60;

    static void say(String step) {
        System.out.println("ok " + step);
        System.out.flush();
    }

    static void check(boolean held, String step) {
        if (!held) throw new AssertionError(step);
        say(step);
    }

    public static void main(String[] arguments) {
        try {
            run(arguments[0], Integer.parseInt(arguments[1]));
        } catch (Throwable fault) {
            fault.printStackTrace();
            System.exit(1);
        }
        System.exit(0);  // Netty's threads go on
    }

    static void run(String url, int heartbeatS) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(url);
        factory.setRequestedHeartbeat(heartbeatS);
        // Usually 10 s, of which each answer may take half. On a busy machine it loads its classes for that long.
        factory.setHandshakeTimeout(PATIENCE_S * 1000);
        factory.setNetworkRecoveryInterval(200);
        factory.netty();
        CountDownLatch lost = new CountDownLatch(1), recovered = new CountDownLatch(1);
        try (Connection connection = factory.newConnection("netty")) {
            connection.addShutdownListener(cause -> lost.countDown());
            ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
                public void handleRecovery(Recoverable recoverable) { recovered.countDown(); }
                public void handleRecoveryStarted(Recoverable recoverable) { }
            });
            Channel channel = connection.createChannel();
            BlockingQueue<String> received = new LinkedBlockingQueue<>();
            channel.queueDeclare("netty", true, false, false, null);
            channel.confirmSelect();
            channel.basicConsume("netty", true, (tag, message) -> received.add(new String(message.getBody())), tag -> { });
            publish(channel, "first");
            check("first".equals(received.poll(PATIENCE_S, TimeUnit.SECONDS)), "published and consumed");
            check(!lost.await(2 * heartbeatS, TimeUnit.SECONDS), "quiet");
            check(lost.await(PATIENCE_S, TimeUnit.SECONDS), "lost");
            check(recovered.await(PATIENCE_S, TimeUnit.SECONDS), "recovered");
            publish(channel, "second");
            check("second".equals(received.poll(PATIENCE_S, TimeUnit.SECONDS)), "published and consumed again");
        }
    }

    static void publish(Channel channel, String text) throws Exception {
        channel.basicPublish("", "netty", MessageProperties.PERSISTENT_BASIC, text.getBytes());
        channel.waitForConfirmsOrDie(PATIENCE_S * 1000);
    }
}
