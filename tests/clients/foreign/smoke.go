// amqp091-go, RabbitMQ's Go client, against the broker at the URL given. Leaves with 0 when every step did what it should.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const patience = 30 * time.Second

func check(held bool, step string) {
	if !held {
		fmt.Println("FAILED", step)
		os.Exit(1)
	}
	fmt.Println("ok", step)
}

func must(err error) {
	if err != nil {
		fmt.Println("FAILED", err)
		os.Exit(1)
	}
}

func main() {
	connection, err := amqp.DialConfig(os.Args[1], amqp.Config{Heartbeat: 5 * time.Second, Properties: amqp.Table{"connection_name": "smoke"}})
	must(err)
	confirmsAndConsuming(connection)
	headersComeBack(connection)
	returns(connection)
	errors(connection)
	must(connection.Close())
}

func open(connection *amqp.Connection) (*amqp.Channel, string) {
	channel, err := connection.Channel()
	must(err)
	queue, err := channel.QueueDeclare("", false, true, true, false, nil)
	must(err)
	return channel, queue.Name
}

func confirmsAndConsuming(connection *amqp.Connection) {
	channel, queue := open(connection)
	must(channel.Confirm(false))
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation, 1000))
	for n := 0; n < 1000; n++ {
		message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(strconv.Itoa(n))}
		must(channel.PublishWithContext(context.Background(), "", queue, true, false, message))
	}
	for n := 1; n <= 1000; n++ {
		select {
		case confirm := <-confirms:
			if !confirm.Ack || confirm.DeliveryTag != uint64(n) {
				check(false, "confirms come in order")
			}
		case <-time.After(patience):
			check(false, "a thousand publishes are confirmed")
		}
	}
	check(true, "a thousand publishes are confirmed")

	must(channel.Qos(50, 0, false))
	deliveries, err := channel.Consume(queue, "mine", false, false, false, false, nil)
	must(err)
	for n := 0; n < 1000; n++ {
		select {
		case delivery := <-deliveries:
			if string(delivery.Body) != strconv.Itoa(n) {
				check(false, "a thousand deliveries come in order")
			}
			must(delivery.Ack(n%10 == 9))
		case <-time.After(patience):
			check(false, "a thousand deliveries come")
		}
	}
	check(true, "a thousand deliveries come in order")

	cancelled := channel.NotifyCancel(make(chan string, 1))
	other, _ := open(connection)
	_, err = other.QueueDelete(queue, false, false, false)
	must(err)
	select {
	case tag := <-cancelled:
		check(tag == "mine", "a consumer hears of its queue being deleted")
	case <-time.After(patience):
		check(false, "a consumer hears of its queue being deleted")
	}
}

func headersComeBack(connection *amqp.Connection) {
	channel, queue := open(connection)
	sent := amqp.Table{
		"bool": true, "byte": byte(200), "int8": int8(-3), "int16": int16(-4), "int32": int32(-5), "int64": int64(1) << 40, "float32": float32(0.5),
		"float64": 1.5, "decimal": amqp.Decimal{Scale: 2, Value: 1234}, "time": time.Unix(1700000000, 0), "string": "é", "octets": []byte{0, 255},
		"list": []interface{}{int32(1), "two", nil}, "table": amqp.Table{"inner": amqp.Table{"deep": int64(7)}}, "nil": nil,
	}
	message := amqp.Publishing{Headers: sent, Timestamp: time.Unix(1700000000, 0), Priority: 3, Body: make([]byte, 300000)}
	must(channel.PublishWithContext(context.Background(), "", queue, true, false, message))
	found, ok, err := channel.Get(queue, true)
	must(err)
	check(ok && len(found.Body) == 300000, "a large body comes back")
	for name, value := range sent {
		if got, isTime := found.Headers[name].(time.Time); isTime {
			check(got.Equal(value.(time.Time)), "header time")
			continue
		}
		check(reflect.DeepEqual(found.Headers[name], value), "header "+name)
	}
}

func returns(connection *amqp.Connection) {
	channel, _ := open(connection)
	returned := channel.NotifyReturn(make(chan amqp.Return, 1))
	must(channel.PublishWithContext(context.Background(), "", "no.such.queue", true, false, amqp.Publishing{}))
	select {
	case message := <-returned:
		check(message.ReplyCode == 312, "an unroutable message is returned")
	case <-time.After(patience):
		check(false, "an unroutable message is returned")
	}
}

func errors(connection *amqp.Connection) {
	channel, _ := open(connection)
	_, err := channel.QueueDeclarePassive("no.such.queue", false, false, false, false, nil)
	refused, ok := err.(*amqp.Error)
	check(ok && refused.Code == 404, "a missing queue is 404")
	check(!connection.IsClosed(), "the connection survives it")
}
