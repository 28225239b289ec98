"""How ranks of a launcher that only gives an address and a port come by the communicator's id."""

from __future__ import annotations

import os
import socket
import time

from ._communicator import unique_id
from ._library import UNIQUE_ID_BYTES

_HELLO = b"tutti-id"


def _read(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            break
        data += part
    return data


def _number(name: str) -> int:
    text = os.environ.get(name)
    if text is None:
        raise RuntimeError(f"{name} is not set: start the ranks by `python -m tutti run -n 4 script.py`, or set RANK, "
                           "WORLD_SIZE, MASTER_ADDR and MASTER_PORT")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}={text} is not a whole number") from None


def _hand_out(server: socket.socket, size: int, id: bytes, deadline: float) -> None:
    missing = set(range(1, size))
    while missing:
        server.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            connection, _ = server.accept()
        except TimeoutError:
            raise TimeoutError(f"rank 0 of {size}: ranks {sorted(missing)} did not come to MASTER_ADDR:MASTER_PORT") from None
        with connection:
            connection.settimeout(5)  # a stray connection does not hold up the ranks for long
            try:
                greeting = _read(connection, len(_HELLO) + 4)
                if greeting[:-4] == _HELLO and (rank := int.from_bytes(greeting[-4:], "little")) in missing:
                    connection.sendall(id)
                    missing.discard(rank)
            except OSError:
                continue  # that rank comes again


def _fetch(address: tuple[str, int], rank: int, deadline: float) -> bytes:
    pause = 0.005
    while True:
        try:
            with socket.create_connection(address, timeout=max(deadline - time.monotonic(), 0.001)) as connection:
                connection.sendall(_HELLO + rank.to_bytes(4, "little"))
                id = _read(connection, UNIQUE_ID_BYTES)
                if len(id) == UNIQUE_ID_BYTES:
                    return id
                reason: object = "it closed the connection; does something else listen there?"
        except OSError as error:
            reason = error
        if time.monotonic() + pause > deadline:
            raise TimeoutError(f"rank {rank}: no id from rank 0 at {address[0]}:{address[1]} (MASTER_ADDR, MASTER_PORT): "
                               f"{reason}")
        time.sleep(pause)  # until rank 0 listens
        pause = min(2 * pause, 0.2)


def exchange_id(timeout: float) -> tuple[int, int, bytes]:
    """(rank, size, id), the same id on all ranks."""
    rank, size, port = _number("RANK"), _number("WORLD_SIZE"), _number("MASTER_PORT")
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    if not 0 <= rank < size:
        raise ValueError(f"RANK={rank} is not below WORLD_SIZE={size}")
    deadline = time.monotonic() + timeout
    if rank != 0:
        return rank, size, _fetch((host, port), rank, deadline)
    id = unique_id()
    if size > 1:
        try:
            server = socket.create_server((host, port), backlog=max(size, 128))
        except OSError as error:
            raise RuntimeError(f"rank 0 cannot listen at MASTER_ADDR:MASTER_PORT {host}:{port}: {error}") from error
        with server:
            _hand_out(server, size, id, deadline)
    return rank, size, id
