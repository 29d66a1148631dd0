// Messages that a client of this page received, as the view of messages shows them: plain values.

import {Marked} from "../decode/values.js";
import {hexOf} from "../decode/values.js";

/** Values of AMQP's tables as JSON has them. */
export function plain(value) {
    if (value instanceof Map) return Object.fromEntries([...value].map(([key, one]) => [key, plain(one)]));
    if (Array.isArray(value)) return value.map(plain);
    if (value instanceof Uint8Array) return `hex ${hexOf(value)}`;
    if (value instanceof Marked) return value.mark === "timestamp" ? plain(value.value) : `${value.mark} ${plain(value.value)}`;
    return typeof value === "bigint" ? String(value) : value;
}

/** A delivery or a return of wire/amqp.js. */
export function ofAmqp(content, position) {
    return {
        position, exchange: content.exchange, routing_key: content.routingKey, redelivered: content.redelivered ?? false, octets: content.body,
        payload_bytes: content.size, timestamp: Date.now(), properties: plain(new Map(Object.entries(content.properties))),
    };
}

/** A message of wire/mqtt.js. */
export function ofMqtt(message, position) {
    return {
        position, routing_key: message.topic, octets: message.payload, payload_bytes: message.payload.length, timestamp: Date.now(),
        properties: message.userProperties.length ? {headers: Object.fromEntries(message.userProperties)} : {},
    };
}
