"""The broker's HTTP API, for everything that has no client of AMQP: `curl`, browsers, webhooks, Prometheus.

    server.py       listens, and ends
    access.py       who may call what; requests of other web pages are refused
    problems.py     errors as HTTP says them
    call.py         a request, and what its handler needs of it
    routes.py       the one table of what there is, and the OpenAPI document made from it
    queues.py       publish, look, purge, hold, requeue
    cloudevents.py  events as CloudEvents writes them, to messages and back
    overview.py     the graph and its numbers
    metrics.py      the same for Prometheus
    webhooks.py     POSTs messages to URLs
    websub.py       a W3C WebSub hub
    targets.py      which URLs may be called
    page/           the live page
"""
