"""The management API: RabbitMQ's HTTP API on Flask and gevent.pywsgi, and Prometheus metrics.

Reads the counters of the broker's other packages, and keeps samples of them for rates and curves.
"""
