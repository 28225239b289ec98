"""Ranks on hosts whose wire loses, delays, reorders, repeats, changes and resets: results are right, or errors name the link."""

import socket
import struct
import time
import unittest

import bed
import proxy
from host_case import BOUND, REMOTE, HostCase, T, between

RESET_BOUND = max(1.0, T)  # nothing has to be waited for but, on a loaded machine, a turn on the CPU


def segment(data, source=("10.77.0.1", 1000), target=("10.77.0.2", 2000), sequence=7, acknowledged=9):
    """A frame with these bytes over TCP, and all sums right."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40 + len(data), 0, 0, 64, socket.IPPROTO_TCP, 0, socket.inet_aton(source[0]), socket.inet_aton(target[0]))
    tcp = struct.pack("!HHIIBBHHH", source[1], target[1], sequence, acknowledged, 5 << 4, proxy.ACK, 100, 0, 0)
    frame = bytearray(b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0" + ip + tcp + data)
    return proxy.summed(frame, proxy.ETHERNET + 20)


def is_sound(frame):
    """TCP's checksum, by its definition."""
    tcp = frame[proxy.ETHERNET + 20 :]
    pseudo = frame[proxy.ETHERNET + 12 : proxy.ETHERNET + 20] + struct.pack("!HH", socket.IPPROTO_TCP, len(tcp))
    return proxy.internet_sum(pseudo + tcp) == 0xFFFF


class Proxy(unittest.TestCase):
    """The proxy itself, without a network."""

    def test_a_seed_gives_the_same_fates_again(self):
        harm = proxy.Harm(loss=0.1, duplication=0.1, reordering=0.1, flips=0.1, delay=0.2, jitter=0.1)
        frames = [segment(bytes([number])) for number in range(200)]
        first, again, other = ([dice.fates(frame, harm, 0.01 * at) for at, frame in enumerate(frames)]
                               for dice in (proxy.Dice(5), proxy.Dice(5), proxy.Dice(6)))  # fmt: skip
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_shares_are_what_was_asked_for(self):
        frame = segment(b"abc")
        for harm, is_met in (
            (proxy.Harm(loss=0.2), lambda fates: not fates),
            (proxy.Harm(duplication=0.2), lambda fates: len(fates) == 2),
            (proxy.Harm(flips=0.2), lambda fates: fates[0][1] != frame),
            (proxy.Harm(reordering=0.2), lambda fates: fates[0][0] > 1),
            (proxy.Harm(jitter=0.2, delay=0.1), lambda fates: fates[0][0] > 1.26),
        ):
            share = sum(is_met(proxy.Dice(seed).fates(frame, harm, 1.0)) for seed in range(4000)) / 4000
            self.assertAlmostEqual(share, 0.2, delta=0.03, msg=harm)

    def test_jitter_alone_lets_nothing_overtake(self):
        dice, harm = proxy.Dice(1), proxy.Harm(jitter=0.5)
        leave = [dice.fates(b"\0" * 60, harm, 0.01 * at)[0][0] for at in range(100)]
        self.assertEqual(leave, sorted(leave))

    def test_a_flip_is_seen_by_tcp_unless_it_is_to_hide(self):
        frame = segment(bytes(range(99)))
        self.assertTrue(is_sound(frame))
        flipped = bytearray(frame)
        flipped[-1] ^= 4
        self.assertFalse(is_sound(bytes(flipped)))
        hidden = proxy.Packet.of(frame).with_data_flipped(8 * 98 + 2)
        self.assertTrue(is_sound(hidden))
        self.assertEqual(hidden[-1], frame[-1] ^ 4)
        self.assertEqual(hidden[:-1][proxy.ETHERNET + 40 :], frame[:-1][proxy.ETHERNET + 40 :])

    def test_resets_go_where_each_side_goes_on(self):
        packet = proxy.Packet.of(segment(b"abc", sequence=7, acknowledged=9))
        onward, back = (proxy.Packet.of(frame) for frame in packet.resets())
        self.assertEqual((onward.source, onward.target, onward.sequence, onward.flags), (1000, 2000, 7, proxy.RST))
        self.assertEqual((back.source, back.target, back.sequence, back.flags), (2000, 1000, 9, proxy.RST))
        self.assertEqual(onward.flow, packet.flow)
        self.assertEqual(back.flow, packet.flow)
        self.assertTrue(is_sound(onward.frame) and is_sound(back.frame))

    def test_what_is_no_tcp_is_no_packet(self):
        self.assertIsNone(proxy.Packet.of(b"\0" * 60))
        self.assertIsNone(proxy.Packet.of(segment(b"")[:30]))


class WireCase(HostCase):
    def make_wire(self, hosts, number):
        """Around that host; nothing is harmed yet."""
        for host in hosts.all:
            host.make_plain()
        wire = proxy.Wire(hosts[number])
        self.addCleanup(wire.end)
        return wire

    def wait_for_flows(self, wire, least):
        """Until a connection has carried so many bytes."""
        for _ in range(300):
            if wire.flows(least):
                return
            time.sleep(0.1)
        self.fail(f"no connection has carried {least} bytes: {wire.bytes_of}")


class HarmlessHarm(WireCase):
    """What TCP mends, or the clock forgives."""

    def run_over(self, timeout_ms=20_000, steps="times:3:allreduce:20000 alltoall:5000 broadcast:20000:0 allreduce:100 destroy", **harm):
        hosts = self.make_hosts(2)
        wire = self.make_wire(hosts, 1)
        wire.harm(**harm)
        ranks = self.launch_on(hosts, [0, 1, 0], *[steps] * 3, timeout_ms=timeout_ms)
        for step in steps.split():
            self.expect_success(ranks, step)
        return hosts

    def test_a_late_lossy_wire(self):
        self.run_over(delay=0.2, jitter=0.05, loss=0.01, timeout_ms=10_000)

    def test_packets_in_another_order_and_twice(self):
        self.run_over(reordering=0.05, duplication=0.05)

    def test_flipped_bits_are_dropped_by_tcp(self):
        hosts = self.run_over(flips=0.02)
        self.assertGreater(hosts[0].checksum_errors() + hosts[1].checksum_errors(), 0)


class Resets(WireCase):
    def test_of_data_in_mid_transfer(self):
        hosts = self.make_hosts(3)
        wire = self.make_wire(hosts, 2)
        steps = "loop:allreduce:20000 shrink:2:abort allreduce:1000 destroy"
        ranks = self.launch_on(hosts, [0, 1, 2], steps, steps, "loop:allreduce:20000", timeout_ms=20_000)
        self.wait_for_flows(wire, 200_000)
        reset = time.monotonic()
        wire.reset(wire.flows(200_000))
        self.expect([ranks[2]], "loop", REMOTE, between(2), reset, RESET_BOUND)
        self.expect(ranks[:2], "loop", REMOTE, r"rank 2 ", reset, RESET_BOUND)
        self.expect_survivors(ranks[:2])

    def test_of_all_connections_of_a_host(self):
        hosts = self.make_hosts(3)
        wire = self.make_wire(hosts, 2)
        steps = "loop:alltoall:5000 shrink:2:abort allreduce:1000 destroy"
        ranks = self.launch_on(hosts, [0, 1, 2], steps, steps, "loop:alltoall:5000", timeout_ms=20_000)
        self.wait_for_flows(wire, 200_000)
        reset = time.monotonic()
        wire.reset(wire.flows(0))
        self.expect(ranks, "loop", REMOTE, between(2), reset, RESET_BOUND)
        self.expect_survivors(ranks[:2])


class ChangedBytes(WireCase):
    """TCP's checksum is mended: what changes them knows what it does."""

    def test_of_control_messages(self):
        hosts = self.make_hosts(3)
        wire = self.make_wire(hosts, 2)
        rest = "times:5:allreduce:20000 line split:0:0"
        survivors = rest + " shrink:2:abort allreduce:1000 destroy"
        ranks = self.launch_on(hosts, [0, 1, 2], survivors, survivors, rest, timeout_ms=20_000)
        self.expect_success(ranks, "times")
        wire.flip_data(wire.flows(1, 50_000), times=1000)
        changed = time.monotonic()
        for rank in ranks:
            rank.say("go")
        self.expect(ranks, "split", REMOTE, between(2), changed, BOUND)
        self.assertRegex("".join(rank.result("split")[2] for rank in ranks), r"rank \d \(.*\) sent a frame changed on its way")
        self.assertGreater(wire.changed, 0)
        self.expect_survivors(ranks[:2])

    def test_of_data_with_checksums(self):
        hosts = self.make_hosts(3)
        wire = self.make_wire(hosts, 2)
        steps = "loop:allreduce:20000 shrink:2:abort allreduce:1000 destroy"
        ranks = self.launch_on(hosts, [0, 1, 2], steps, steps, "loop:allreduce:20000", timeout_ms=20_000, TUTTI_NET_CHECKSUM="1")
        self.wait_for_flows(wire, 200_000)
        changed = time.monotonic()
        wire.flip_data(wire.flows(200_000))
        self.expect(ranks, "loop", REMOTE, rf"(?=.*(message of \d+ bytes|head of a message) from rank [012] at [\d.:]+ was changed on its way)({between(2)})", changed, BOUND)
        self.expect_survivors(ranks[:2])

    def test_nothing_else_has_checksums_fail(self):
        hosts = self.make_hosts(2)
        wire = self.make_wire(hosts, 1)
        wire.harm(flips=0.02, duplication=0.02, reordering=0.02)
        steps = "allreduce:1 alltoall:3000 allreduce:30000 broadcast:9:0 destroy"
        ranks = self.launch_on(hosts, [0, 1, 1], *[steps] * 3, timeout_ms=20_000, TUTTI_NET_CHECKSUM="1")
        for step in steps.split():
            self.expect_success(ranks, step)


if __name__ == "__main__":
    bed.enter()
    unittest.main(verbosity=1)
