"""Verbs: the operations that clients may request in a vhost (declare, bind, publish...), for every protocol.

Each operation is one function, which checks the rights it needs and then acts on the vhost. The AMQP, MQTT
and HTTP servers translate between a protocol and these functions, and check no rights themselves.
"""
