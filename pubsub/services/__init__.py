"""Request and reply in the patterns of the ZeroMQ Guide's fourth chapter, on its wire (docs/services.md).

A *core* is a pattern without sockets, clock and threads. The *shell* owns the sockets and the clock, and drives one
core.

    core/interface.py   the calls and values between a core and its shell: Send, Dial, HangUp, Port; events; `BaseCore`
    core/…              the cores: `core.receive(port, peer, frames, now)`, `tick(now)`, `timer()`,
                        `take_sends()`, `take_events()`; callers, workers and servers have a few calls more
    core/lockstep.py    the caller for protocols with replies that name no request
    entrance.py keys.py access: authorized keys, rights, and the keys of this process
    engine.py           the shell for every core; other threads `submit`
    kinds.py            tables from the name of a kind to its core, for callers, workers, servers and queues
    process.py          a service in the foreground: signals, ready line, orderly end
    calling.py          a call; `ServiceClient` (client.py) and `AsyncServiceClient` (aio.py) wait for it
    worker.py           `Worker`: handlers, a command for each request, echo
    commands.py         `pubsub service …`

A new pattern needs a core, golden frames, and a row in `kinds.py` or a command that makes an `Engine` of the core.
"""
