"""The management door: RabbitMQ's HTTP API on Flask and gevent.pywsgi, and Prometheus metrics.

Reads counters, never keeps them.
"""
