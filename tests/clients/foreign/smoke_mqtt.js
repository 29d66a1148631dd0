// MQTT.js (Debian's node-mqtt) against a broker: node smoke_mqtt.js URL 4|5
// Prints a line for each thing that works, and leaves with 1 at the first that does not.
const mqtt = require('mqtt')
const [url, version] = [process.argv[2], Number(process.argv[3])]
const options = { protocolVersion: version, username: 'guest', password: 'guest', reconnectPeriod: 0 }
const prefix = `js/${version}/${url.split(':')[0]}`

const fail = what => { console.error(what); process.exit(1) }
const check = (is, what) => { if (is) console.log(`ok ${what}`); else fail(`not ok ${what}`) }
const call = (object, name, ...values) => new Promise((resolve, reject) =>
  object[name](...values, (error, ...found) => error ? reject(error) : resolve(found)))
const opened = more => new Promise((resolve, reject) => {
  const client = mqtt.connect(url, { ...options, ...more })
  client.received = []
  client.waiting = []
  client.on('message', (topic, payload, packet) => {
    const message = { topic, payload, packet }
    const first = client.waiting.shift()
    if (first) first(message); else client.received.push(message)
  })
  client.next = () => client.received.length ? Promise.resolve(client.received.shift())
    : new Promise(resolve => client.waiting.push(resolve))
  client.once('connect', connack => { client.connack = connack; resolve(client) })
  client.once('error', reject)
  client.once('close', () => reject(new Error('closed')))
})

async function main () {
  const client = await opened({ clientId: `js-a-${prefix}` })
  check(!client.connack.sessionPresent, 'a connection')

  for (const qos of [0, 1, 2]) {
    const [granted] = await call(client, 'subscribe', `${prefix}/${qos}/+`, { qos })
    check(granted[0].qos === qos, `a subscription at QoS ${qos}`)
    await call(client, 'publish', `${prefix}/${qos}/x`, Buffer.alloc(70000, qos), { qos })
    const { topic, payload, packet } = await client.next()
    check(topic === `${prefix}/${qos}/x` && payload.length === 70000 && payload[5] === qos && packet.qos === qos,
      `a large message at QoS ${qos}`)
  }

  await call(client, 'publish', `${prefix}/kept`, 'kept', { qos: 1, retain: true })
  await call(client, 'subscribe', `${prefix}/kept`, { qos: 1 })
  const kept = await client.next()
  check(kept.packet.retain && kept.payload.toString() === 'kept', 'a retained message')
  await call(client, 'publish', `${prefix}/kept`, '', { qos: 1, retain: true })
  check((await client.next()).payload.length === 0, 'its deletion')

  if (version === 5) {
    const properties = {
      contentType: 'text/plain', responseTopic: 'answers', correlationData: Buffer.from([0, 255]),
      userProperties: { colour: 'red' }, messageExpiryInterval: 60, payloadFormatIndicator: true
    }
    await call(client, 'publish', `${prefix}/1/properties`, 'x', { qos: 1, properties })
    const found = (await client.next()).packet.properties
    check(found.contentType === 'text/plain' && found.responseTopic === 'answers' &&
      found.correlationData.equals(properties.correlationData) && found.userProperties.colour === 'red' &&
      found.payloadFormatIndicator === true && found.messageExpiryInterval <= 60, 'properties')
  }

  const kept5 = version === 5 ? { properties: { sessionExpiryInterval: 600 } } : {}
  const session = { clientId: `js-s-${prefix}`, clean: false, ...kept5 }
  const away = await opened(session)
  await call(away, 'subscribe', `${prefix}/away`, { qos: 2 })
  await call(away, 'end', false, {})
  for (let number = 0; number < 20; number++) {
    await call(client, 'publish', `${prefix}/away`, `${number}`, { qos: 1 + number % 2 })
  }
  const back = await opened(session)
  check(back.connack.sessionPresent, 'a session that is there')
  const numbers = { 1: [], 2: [] } // those of QoS 2 are given out at PUBREL, and so behind others
  for (let number = 0; number < 20; number++) {
    const { payload, packet } = await back.next()
    numbers[packet.qos].push(Number(payload))
  }
  check([1, 2].every(qos => numbers[qos].length === 10 && numbers[qos].every((number, at) => number === qos - 1 + 2 * at)),
    'messages that waited for it, in order')
  await call(back, 'unsubscribe', `${prefix}/away`)
  await call(back, 'end', false, {})

  await call(client, 'subscribe', `${prefix}/will`, { qos: 1 })
  const dying = await opened({ clientId: `js-w-${prefix}`, will: { topic: `${prefix}/will`, payload: 'gone', qos: 1 } })
  dying.stream.destroy()
  check((await client.next()).payload.toString() === 'gone', 'a will')
  await call(client, 'end', false, {})
  console.log('ok the end')
  process.exit(0)
}

main().catch(error => fail(error.stack))
setTimeout(() => fail('too late'), Number(process.env.PATIENCE_MS || 30000)).unref()
