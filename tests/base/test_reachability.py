"""What an attempt to connect says of an address."""

from __future__ import annotations

import socket
from pathlib import Path

from pubsub.base.reachability import obstacle, obstacles


def test_who_listens_is_no_obstacle(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        assert obstacle(address) == ""
        assert obstacles([address]) == f"{address}: no answer"
    assert obstacle(address) == "Connection refused"
    with socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "s"))
        local.listen()
        assert obstacle(f"ipc://{tmp_path}/s") == ""
    assert obstacle(f"ipc://{tmp_path}/none") == "No such file or directory"
    assert obstacle("inproc://x") == ""


def test_each_address_is_named_with_its_reason(tmp_path: Path) -> None:
    first, second = f"ipc://{tmp_path}/a", f"ipc://{tmp_path}/b"
    assert obstacles([first, second]) == f"{first}: No such file or directory; {second}: No such file or directory"
