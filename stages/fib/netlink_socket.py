"""A raw netlink socket: the one file of Headrace that touches AF_NETLINK, and enters network namespaces.

Owns the descriptor, its buffers and many-datagrams-at-once reading. Never looks into what it carries, except that
`drop_caused_by` has the kernel drop notifications of what one program did itself.

Sources: netlink(7), recvmmsg(2), socket(7), linux/filter.h.
"""

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct

import numpy as np

ROUTE = 0  # NETLINK_ROUTE
SOL_NETLINK = 270
ADD_MEMBERSHIP, CAP_ACK, EXT_ACK, STRICT_CHECK = 1, 10, 11, 12  # options of SOL_NETLINK
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_ATTACH_FILTER = 32, 33, 26
MESSAGE_HEADER_OCTETS = 64  # struct mmsghdr on 64-bit machines: seven words of struct msghdr, then the length

CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_recvmmsg = _libc.recvmmsg
_recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)


@contextlib.contextmanager
def inside(namespace: str):
    """Be in a network namespace of ip-netns(8): sockets opened here stay there. "": where we are."""
    if not namespace:
        yield
        return
    with open("/proc/self/ns/net") as before, open(f"/run/netns/{namespace}") as wanted:
        _enter(wanted.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


class Overrun(Exception):
    """The kernel had more to say than the receive buffer could hold; something was lost (ENOBUFS)."""


class NetlinkSocket:
    """One NETLINK_ROUTE socket, bound, never blocking when read.

    After `receive`, datagram `k` is `lengths[k]` octets at `k * slot_octets` of `octets`, until the next `receive`.
    """

    def __init__(self, groups: tuple[int, ...] = (), buffer_octets: int = 16 << 20, slots: int = 64, slot_octets=32768):
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, ROUTE)
        self._size_buffers(buffer_octets)
        for option in (CAP_ACK, EXT_ACK, STRICT_CHECK):
            self._socket.setsockopt(SOL_NETLINK, option, 1)
        self._socket.bind((0, 0))
        for group in groups:
            self._socket.setsockopt(SOL_NETLINK, ADD_MEMBERSHIP, group)
        self.port: int = self._socket.getsockname()[0]
        self.slot_octets = slot_octets
        self.octets = np.zeros(slots * slot_octets, np.uint8)
        self._prepare_headers(slots)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, octets) -> None:
        """Send one datagram of requests; the kernel has worked through all of them when this returns."""
        self._socket.sendto(octets, (0, 0))

    def receive(self) -> np.ndarray:
        """Read the datagrams that are waiting, at most one a slot; return their lengths (uint32), none: empty.

        Raises Overrun once if anything was lost since the last call.
        """
        self._headers[:, 12] = 0
        n = _recvmmsg(self.fileno(), self._headers.ctypes.data, len(self._headers), socket.MSG_DONTWAIT, None)
        if n < 0:
            code = ctypes.get_errno()
            if code in (errno.EAGAIN, errno.EINTR):
                return self._lengths[:0]
            if code == errno.ENOBUFS:
                raise Overrun
            raise OSError(code, os.strerror(code))
        np.copyto(self._lengths[:n], self._headers[:n, 14])
        return self._lengths[:n]

    def datagram(self, slot: int) -> bytes:
        """Return the datagram in one slot."""
        start = slot * self.slot_octets
        return self.octets[start : start + int(self._lengths[slot])].tobytes()

    def drain(self) -> None:
        """Read all that is waiting and look at none of it."""
        while True:
            with contextlib.suppress(Overrun):
                if not len(self.receive()):
                    return

    def wait(self, timeout_s: float) -> bool:
        """Wait until something can be read; tell whether it can."""
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def drop_caused_by(self, *ports: int) -> None:
        """Have the kernel drop messages whose nlmsg_pid is one of `ports`, before they take room in the buffer.

        A filter in classic BPF; its loads are in network order, whatever order the message is in.
        """
        instruction = struct.Struct("=HBBI")
        instructions = [(0x20, 0, 0, 12)]  # load the word at 12: nlmsg_pid
        for k, port in enumerate(ports):
            instructions.append((0x15, len(ports) - k, 0, socket.htonl(port)))  # if equal, to the last
        instructions += [(0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)]  # keep; drop
        held = ctypes.create_string_buffer(b"".join(instruction.pack(*one) for one in instructions))
        program = struct.pack("@HL", len(instructions), ctypes.addressof(held))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)

    def _size_buffers(self, n_octets: int) -> None:
        """Make room for a whole batch of requests and its replies; the forced form takes CAP_NET_ADMIN."""
        for forced, plain in ((SO_SNDBUFFORCE, socket.SO_SNDBUF), (SO_RCVBUFFORCE, socket.SO_RCVBUF)):
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, forced, n_octets)
            except PermissionError:
                self._socket.setsockopt(socket.SOL_SOCKET, plain, n_octets)

    def _prepare_headers(self, slots: int) -> None:
        self._lengths = np.zeros(slots, np.uint32)
        self._vectors = np.zeros((slots, 2), np.uint64)  # struct iovec: address, length
        self._vectors[:, 0] = self.octets.ctypes.data + np.arange(slots, dtype=np.uint64) * np.uint64(self.slot_octets)
        self._vectors[:, 1] = self.slot_octets
        headers = np.zeros((slots, MESSAGE_HEADER_OCTETS // 8), np.uint64)
        headers[:, 2] = self._vectors.ctypes.data + np.arange(slots, dtype=np.uint64) * np.uint64(16)
        headers[:, 3] = 1
        self._headers = headers.view(np.uint32)
