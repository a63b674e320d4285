"""Which addresses only this host reaches."""

import pytest

from pubsub.base.loopback import reaches_out


@pytest.mark.parametrize(
    "address",
    [
        "inproc://bank",
        "ipc:///run/pubsub/proxy",
        "tcp://127.0.0.1:5601",
        "tcp://127.1.2.3:0",
        "tcp://localhost:*",
        "tcp://LOCALHOST:5601",
        "tcp://lo:5601",
        "tcp://[::1]:5601",
    ],
)
def test_loopback_addresses_do_not_reach_out(address):
    assert not reaches_out(address)


@pytest.mark.parametrize(
    "address",
    [
        "tcp://*:5601",
        "tcp://0.0.0.0:5601",
        "tcp://[::]:5601",
        "tcp://10.0.0.1:5601",
        "tcp://eth0:5601",
        "tcp://127.0.0.1.example.org:5601",
        "tcp://localhost.example.org:5601",
        "tcp://127.0.0.1:5601;0.0.0.0:5602",
        "tcp://localhost:5601\n",
        "udp://127.0.0.1:5601",
        "ws://127.0.0.1:5601",
        "nonsense",
    ],
)
def test_public_and_unknown_addresses_reach_out(address):
    assert reaches_out(address)
