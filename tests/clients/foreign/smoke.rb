# Bunny, the Ruby client, against the broker at the URL given. Leaves with 0 when every step did what it should.
require "bunny"

PATIENCE_S = 30

def check(held, step)
  raise step unless held
  puts "ok #{step}"
end

connection = Bunny.new(ARGV[0], heartbeat: 5, continuation_timeout: PATIENCE_S * 1000, recover_from_connection_close: false).start

channel = connection.create_channel
channel.confirm_select
queue = channel.queue("", exclusive: true)
500.times { |n| queue.publish(n.to_s, persistent: true, headers: { "n" => n, "list" => [1, "two", { "three" => nil }] }) }
check channel.wait_for_confirms, "publishes are confirmed"
check queue.message_count == 500, "the queue counts them"

received = ::Queue.new
channel.prefetch(20)
consumer = queue.subscribe(manual_ack: true) do |delivery, properties, body|
  channel.ack(delivery.delivery_tag)
  received << [body.to_i, properties.headers]
end
bodies = Array.new(500) { Timeout.timeout(PATIENCE_S) { received.pop } }
check bodies.map(&:first) == (0...500).to_a, "deliveries come in order"
check bodies[7].last == { "n" => 7, "list" => [1, "two", { "three" => nil }] }, "headers come back"
consumer.cancel

topic = channel.topic("amq.topic")
queue.bind(topic, routing_key: "#{queue.name}.#")
topic.publish("x", routing_key: "#{queue.name}.a")
delivery, _properties, body = queue.pop(manual_ack: true)
check body == "x", "a topic binding routes"
channel.nack(delivery.delivery_tag, false, true)
check queue.pop[0].redelivered?, "a nacked message is redelivered"
check queue.pop[0].nil?, "an empty queue gives nothing"

returned = ::Queue.new
exchange = channel.default_exchange
exchange.on_return { |info, _properties, _content| returned << info.reply_code }
exchange.publish("lost", routing_key: "no.such.queue", mandatory: true)
check Timeout.timeout(PATIENCE_S) { returned.pop } == 312, "an unroutable message is returned"

begin
  connection.create_channel.queue_declare("no.such.queue", passive: true)
  raise "a missing queue was found"
rescue Bunny::NotFound => error
  check error.channel_close.reply_code == 404, "a missing queue is 404"
end
check connection.open?, "the connection survives it"

connection.close
