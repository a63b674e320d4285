"""Services: request and reply in the patterns of the ZeroMQ Guide's fourth chapter, on its wire (docs/services.md).

    core/interface.py   what a core and its shell say to each other: Send, Dial, HangUp, Port; events; `BaseCore`
    core/…              the patterns, pure: `core.receive(port, peer, frames, now)`, `tick(now)`, `timer()`,
                        `take_sends()`, `take_events()`; callers, workers and servers have a few calls more
    core/lockstep.py    the caller of protocols whose replies do not say what they answer
    entrance.py keys.py who is let in, and by which keys
    engine.py           the one shell: sockets for any core; other threads `submit`
    kinds.py            tables: how to call, work and serve -> the core
    process.py          a service in the foreground: signals, ready line, end in order
    calling.py          a call, once; `ServiceClient` (client.py) and `AsyncServiceClient` (aio.py) wait for it
    worker.py           `Worker`: handlers, a command per request, echo
    commands.py         `pubsub service …`

A new pattern is a core, a row in `kinds.py` or a command that makes an `Engine` of it, and its golden frames.
"""
