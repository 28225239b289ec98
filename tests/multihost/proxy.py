"""A wire that harms what it carries: a program's own, on the level of packets, so that TCP's recovery, checksums and resets
are the kernel's. Each direction throws its own dice, seeded, so that a seed gives each direction the same fates again.

As a program: `proxy.py plain INTERFACE` makes the kernel send packets from there as they go over a cable.
"""

import array
import ctypes
import dataclasses
import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import sys
import threading
import time

ETHERNET = 14  # bytes of its header
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


def internet_sum(data):
    """RFC 1071, not yet complemented."""
    if len(data) % 2:
        data += b"\0"
    words = array.array("H", data)
    words.byteswap()  # this machine is little endian, the network is not
    total = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Packet:
    """TCP over IPv4 in an Ethernet frame; other frames are no Packet."""

    def __init__(self, frame):
        self.frame = bytes(frame)
        self.at = ETHERNET + 4 * (frame[ETHERNET] & 15)  # where TCP's header begins
        self.source, self.target, self.sequence, self.acknowledged = struct.unpack_from("!HHII", frame, self.at)
        self.flags = frame[self.at + 13]
        self.data_at = self.at + 4 * (frame[self.at + 12] >> 4)
        self.end = ETHERNET + struct.unpack_from("!H", frame, ETHERNET + 2)[0]

    @staticmethod
    def of(frame):
        if len(frame) < ETHERNET + 40 or frame[12:14] != b"\x08\0" or frame[ETHERNET + 9] != socket.IPPROTO_TCP:
            return None
        return Packet(frame)

    @property
    def flow(self):
        """The same in both directions."""
        ip = self.frame[ETHERNET + 12 : ETHERNET + 20]
        return frozenset([(ip[:4], self.source), (ip[4:], self.target)])

    @property
    def data_bytes(self):
        return self.end - self.data_at

    def with_data_flipped(self, bit):
        """And a checksum that says that all is well."""
        changed = bytearray(self.frame[: self.end])
        changed[self.data_at + bit // 8] ^= 1 << bit % 8
        return summed(changed, self.at)

    def resets(self):
        """(to its receiver, to its sender): what each would take for a reset by the other."""
        ethernet, ip = self.frame[:ETHERNET], self.frame[ETHERNET : ETHERNET + 20]
        onward = _reset(ethernet, ip, self.source, self.target, self.sequence)
        back_ethernet = ethernet[6:12] + ethernet[:6] + ethernet[12:]
        back_ip = ip[:12] + ip[16:20] + ip[12:16]
        return onward, _reset(back_ethernet, back_ip, self.target, self.source, self.acknowledged)


def _reset(ethernet, ip, source, target, sequence):
    header = bytearray(ip)
    header[0] = 0x45
    struct.pack_into("!H", header, 2, 40)
    struct.pack_into("!H", header, 10, 0)
    struct.pack_into("!H", header, 10, ~internet_sum(bytes(header)) & 0xFFFF)
    tcp = struct.pack("!HHIIBBHHH", source, target, sequence, 0, 5 << 4, RST, 0, 0, 0)
    return summed(bytearray(ethernet + header + tcp), ETHERNET + 20)


def summed(frame, tcp_at):
    """With TCP's checksum as it should be."""
    struct.pack_into("!H", frame, tcp_at + 16, 0)
    pseudo = frame[ETHERNET + 12 : ETHERNET + 20] + struct.pack("!HH", socket.IPPROTO_TCP, len(frame) - tcp_at)
    struct.pack_into("!H", frame, tcp_at + 16, ~internet_sum(bytes(pseudo + frame[tcp_at:])) & 0xFFFF)
    return bytes(frame)


@dataclasses.dataclass
class Harm:
    """What happens to the frames of a direction; shares of 1, and seconds."""

    is_cut: bool = False
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0  # such a frame is held back for `held`: later ones overtake it
    held: float = 0.005
    flips: float = 0.0  # of one bit behind the Ethernet header
    delay: float = 0.0
    jitter: float = 0.0  # up to so much more delay, but none overtakes another


class Dice:
    """What becomes of each frame. Pure: the same seed and the same frames at the same times, the same fates."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.latest = 0.0  # when the last frame that was not held back leaves

    def fates(self, frame, harm, now):
        """[(when it leaves, frame)], each frame as it arrives."""
        # All dice are thrown for each frame, so that one kind of harm does not change the others' luck.
        loss, duplication, reordering, flips, jitter, bit = (self.random.random() for _ in range(6))
        if harm.is_cut or loss < harm.loss:
            return []
        if flips < harm.flips:
            changed = bytearray(frame)
            bit = int(bit * 8 * (len(frame) - ETHERNET))
            changed[ETHERNET + bit // 8] ^= 1 << bit % 8
            frame = bytes(changed)
        self.latest = leaves = max(self.latest, now + harm.delay + harm.jitter * jitter)
        if reordering < harm.reordering:
            leaves += harm.held
        return [(leaves, frame)] * (2 if duplication < harm.duplication else 1)


class Wire:
    """Between a host and the bridge: everything that the host sends or gets goes through a thread of this process."""

    def __init__(self, host, seed=None):
        self.seed = int(os.environ.get("MULTIHOST_SEED", random.randrange(1 << 32))) if seed is None else seed
        print(f"the wire of host {host.number} is harmed by seed {self.seed} (MULTIHOST_SEED)", flush=True)
        self.away = Harm()  # of what the host sends
        self.towards = Harm()
        self.bytes_of = {}  # TCP data by flow
        self.reset_flows = set()
        self.flipped_flows = {}  # how many of their next packets with data are to be changed
        self.changed = 0  # how many were
        self.sockets = [_packet_socket(host.port), _packet_socket(host.join_through_proxy())]
        self.dice = [Dice(self.seed), Dice(self.seed + 1)]
        self.waiting = []  # (when, in which order, over which socket, frame)
        self.order = itertools.count()
        self.is_ending = False
        self.thread = threading.Thread(target=self._carry)
        self.thread.start()

    def harm(self, **both):
        """Harm of both directions from now on."""
        self.away, self.towards = Harm(**both), Harm(**both)

    def flows(self, least, most=1 << 62):
        """Those that have carried between so many bytes."""
        return {flow for flow, count in list(self.bytes_of.items()) if least <= count <= most}

    def reset(self, flows):
        """Each packet of theirs from now on becomes a reset to both ends."""
        self.reset_flows = flows

    def flip_data(self, flows, times=1):
        """A bit near the end of each one's next packets with data, unseen by TCP. (A length that became larger would be no
        change that is seen, but a wait.)"""
        self.flipped_flows = {flow: times for flow in flows}

    def end(self):
        self.is_ending = True
        self.thread.join()
        for each in self.sockets:
            each.close()

    def _carry(self):
        poll = select.poll()
        for each in self.sockets:
            poll.register(each, select.POLLIN)
        while not self.is_ending:
            wait = 50.0
            if self.waiting:
                wait = min(wait, max(0.0, 1000 * (self.waiting[0][0] - time.monotonic())))
            for number, _ in poll.poll(wait):
                side = 0 if number == self.sockets[0].fileno() else 1
                for frame in _arrived(self.sockets[side]):
                    self._take(side, frame)
            now = time.monotonic()
            while self.waiting and self.waiting[0][0] <= now:
                _, _, side, frame = heapq.heappop(self.waiting)
                _send(self.sockets[side], frame)

    def _take(self, side, frame):
        """`side` 0: the host sends it."""
        packet = Packet.of(frame)
        if packet is not None:
            flow = packet.flow
            self.bytes_of[flow] = self.bytes_of.get(flow, 0) + packet.data_bytes
            if flow in self.reset_flows:
                if not packet.flags & RST:
                    onward, back = packet.resets()
                    _send(self.sockets[1 - side], onward)
                    _send(self.sockets[side], back)
                return
            if packet.data_bytes > 0 and self.flipped_flows.get(flow, 0) > 0:
                self.flipped_flows[flow] -= 1
                self.changed += 1
                bits = 8 * packet.data_bytes
                frame = packet.with_data_flipped(self.dice[side].random.randrange(max(0, bits - 64), bits))
        harm = self.away if side == 0 else self.towards
        for leaves, each in self.dice[side].fates(frame, harm, time.monotonic()):
            heapq.heappush(self.waiting, (leaves, next(self.order), 1 - side, each))


def _packet_socket(interface):
    every_protocol = 3
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(every_protocol))
    made.bind((interface, every_protocol))
    made.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE: what is lost is to be lost by the dice
    made.setblocking(False)
    return made


def _arrived(source):
    for _ in range(64):  # then it is the other side's turn
        try:
            frame, address = source.recvfrom(1 << 16)
        except BlockingIOError:
            return
        if address[2] != socket.PACKET_OUTGOING:
            yield frame


def _send(target, frame):
    try:
        target.send(frame)
    except OSError:
        pass  # a full queue or an interface that is down: a wire that loses


def make_plain(interface):
    """Packets leave there as on a cable: none longer than the MTU, none whose checksum is left to an adapter. Else the
    kernel, which knows that no cable is there, does without both."""
    set_commands = (0x17, 0x1F, 0x24)  # ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO of linux/ethtool.h
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for command in set_commands:
        value = ctypes.create_string_buffer(struct.pack("II", command, 0))
        request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
        fcntl.ioctl(control, 0x8946, request)  # SIOCETHTOOL


if __name__ == "__main__":
    make_plain(sys.argv[2])
