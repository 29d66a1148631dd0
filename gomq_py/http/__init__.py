"""The management API: RabbitMQ's HTTP API on Flask and gevent.pywsgi, and Prometheus metrics.

Reads the broker's counters and keeps none.
"""
