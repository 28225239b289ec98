#!/usr/bin/env python3
"""What TCP's zero-copy sends (MSG_ZEROCOPY) would give this library: bare sockets, no library.

A process sends a message as the library does, in pieces of 256 KiB, to one on the other host, which reads it into one
buffer and answers with a byte. Ordinary and zero-copy sends take turns, with the library's send buffer of 128 KiB and with
the kernel's choice ("free"); ratios are to the first of them. A zero-copy message is over when the kernel has also told of each send that its pages
are the program's again. GB/s are medians of the rounds, ratios those of a round's pairs; "copied" is the share of zero-copy
sends for which the kernel says that it copied after all.

Exit codes: 0 measured; 2 usage; 77 no namespaces here.
"""

import argparse
import datetime
import json
import os
import pathlib
import select
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tests" / "multihost")]

import bed  # noqa: E402
from run import MIB, open_bed  # noqa: E402

PIECE = 256 << 10
# linux/socket.h, asm-generic/socket.h, linux/errqueue.h
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
EXTENDED_ERROR = struct.Struct("=IBBBBII")  # sock_extended_err
ORIGIN_ZEROCOPY, WAS_COPIED = 5, 1
SEND_BUFFER = 128 << 10  # src/net/socket/send_buffer.cc
MODES = ("ordinary", "ordinary, free", "zero-copy", "zero-copy, free")


def receive(address):
    """Prints its port, and serves all who come until it is killed."""
    with socket.create_server((address, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()


def serve(connection):
    """A length of eight bytes, so many bytes, an answer; until the connection ends."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    place = memoryview(bytearray(64 * MIB))
    while True:
        head = connection.recv(8, socket.MSG_WAITALL)
        if len(head) < 8:
            return
        size, got = struct.unpack("=Q", head)[0], 0
        while got < size:
            count = connection.recv_into(place[got:size])
            if count == 0:
                return
            got += count
        connection.sendall(b"y")


class Sender:
    def __init__(self, address, port, is_zero_copy, is_bounded):
        self.connection = socket.create_connection((address, port))
        if is_bounded:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.flags = MSG_ZEROCOPY if is_zero_copy else 0
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        self.memory = memoryview(bytearray(os.urandom(MIB)) * 64)
        self.sends = self.told = self.copied = 0

    def message(self, size):
        self.connection.sendall(struct.pack("=Q", size))
        sent = 0
        while sent < size:
            try:
                sent += self.connection.send(self.memory[sent : min(sent + PIECE, size)], self.flags)
                self.sends += self.flags != 0
            except OSError as error:
                # ENOBUFS: as much is pinned as may be, until the kernel's notices are read.
                if not self.flags or not self.hear():
                    raise error
        if self.connection.recv(1) != b"y":
            raise ConnectionError("the receiver has gone")
        while self.told < self.sends:
            self.hear()

    def hear(self):
        """Reads notices, each of a range of sends; waits for one. False: none came."""
        poll = select.poll()
        poll.register(self.connection, 0)
        if not poll.poll(5000):
            return False
        _, ancillary, _, _ = self.connection.recvmsg(0, 512, socket.MSG_ERRQUEUE)
        for _, _, data in ancillary:
            _, origin, _, code, _, first, last = EXTENDED_ERROR.unpack_from(data)
            if origin != ORIGIN_ZEROCOPY:
                continue
            self.told += last - first + 1
            self.copied += (last - first + 1) * (code & WAS_COPIED)
        return True


def send(address, port, sizes, rounds, seconds):
    """Prints for each size the rounds' GB/s of both modes, and what was copied."""
    senders = {mode: Sender(address, port, mode.startswith("zero"), not mode.endswith("free")) for mode in MODES}
    for size in sizes:
        rates = {mode: [] for mode in MODES}
        for number in range(rounds + 1):
            for mode in MODES[number % 4 :] + MODES[: number % 4]:
                count, began = 0, time.perf_counter()
                while (spent := time.perf_counter() - began) < seconds:
                    senders[mode].message(size)
                    count += 1
                if number > 0:  # the first warms up
                    rates[mode].append(count * size / spent / 1e9)
        copied = sum(each.copied for each in senders.values()) / sum(each.sends for each in senders.values())
        print(json.dumps({"size": size, "rates": rates, "copied": copied}), flush=True)


def measure(name, options):
    with open_bed(name) as where:
        prefixes = where.prefixes or ((), ())
        own = [sys.executable, __file__]
        receiver = subprocess.Popen([*prefixes[0], *own, "--receive", where.server], stdout=subprocess.PIPE, text=True)
        try:
            port = receiver.stdout.readline().strip()
            sizes = ",".join(map(str, options.sizes))
            words = ["--send", f"{where.server}:{port}", "--sizes", sizes, "--rounds", str(options.rounds), "--seconds", str(options.seconds)]
            said = subprocess.run([*prefixes[1], *own, *words], stdout=subprocess.PIPE, text=True, check=True).stdout
        finally:
            receiver.kill()
            receiver.wait()
    for line in said.splitlines():
        cell = json.loads(line)
        words = [name, f"{cell['size'] // MIB} MiB", f"{statistics.median(cell['rates']['ordinary']):.2f}"]
        for mode in MODES[1:]:
            pairs = zip(cell["rates"]["ordinary"], cell["rates"][mode], strict=True)
            words.append(f"{statistics.median(cell['rates'][mode]):.2f} ({statistics.median(other / own for own, other in pairs):.2f})")
        print(f"| {' | '.join(words)} | {cell['copied']:.0%} |", flush=True)


def main(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beds", default="loopback,veth")
    parser.add_argument("--sizes", default=",".join(str(count * MIB) for count in (1, 4, 16, 64)), help="bytes, 64 MiB at most")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each mode and round")
    parser.add_argument("--receive", help=argparse.SUPPRESS)
    parser.add_argument("--send", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    options.sizes = [int(size) for size in options.sizes.split(",")]
    if max(options.sizes) > 64 * MIB:
        parser.error("--sizes: 64 MiB at most")
    if options.receive:
        return receive(options.receive)
    if options.send:
        address, port = options.send.rsplit(":", 1)
        return send(address, int(port), options.sizes, options.rounds, options.seconds)
    beds = options.beds.split(",")
    if any(name != "loopback" for name in beds):
        bed.enter()
    print(f"{datetime.date.today()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {options.rounds} rounds\n")
    print(f"GB/s (ratio)\n\n| bed | message | {' | '.join(MODES)} | copied |\n|{' --- |' * (len(MODES) + 3)}")
    for name in beds:
        measure(name, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
