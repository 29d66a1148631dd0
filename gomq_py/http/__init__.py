"""The management door: RabbitMQ's HTTP API on Werkzeug and gevent.pywsgi, and Prometheus metrics.

Reads counters, never keeps them.
"""
