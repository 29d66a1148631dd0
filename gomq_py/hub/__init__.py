"""Hub: what one event loop has, whoever uses it: turns, jobs, timers, work in threads. Below storage, net and the broker; knows none of them."""
